#include "model.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <unordered_map>

#include "foundation/core/text/utf8.h"
#include "headroom/config/run_options.h"
#include "headroom/core/error.h"

namespace headroom::tokenizers {
namespace {

// Character classes used by the patterns: \p{L}, \p{N}, \s (the property White_Space), and all others.
enum class CharacterClass { letter, number, space, other };

struct Character {
  char32_t code = 0;
  CharacterClass kind = CharacterClass::other;
  std::size_t size = 0;  // bytes
};

constexpr unsigned char kFirstBeyondAscii = 0x80;

CharacterClass kind_of(char32_t code) {
  if (code < kFirstBeyondAscii) {
    const char32_t lower = code | 0x20;
    return lower >= 'a' && lower <= 'z' ? CharacterClass::letter
           : code >= '0' && code <= '9' ? CharacterClass::number
           : is_white_space(code)       ? CharacterClass::space
                                        : CharacterClass::other;
  }
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::number;
    default:
      return is_white_space(code) ? CharacterClass::space : CharacterClass::other;
  }
}

// Returns the character that begins at `at` < text.size().
Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < kFirstBeyondAscii) {
    return {.code = first, .kind = kind_of(first), .size = 1};
  }
  const auto [code, size] = first_code_point(text.substr(at));
  return {.code = code, .kind = kind_of(code), .size = std::max<std::size_t>(size, 1)};
}

// Returns the character that ends at `at` > 0.
Character character_before(std::string_view text, std::size_t at) {
  --at;
  while (at > 0 && continues_character(text[at])) {
    --at;
  }
  return character_at(text, at);
}

using Alphabet = std::array<char32_t, config::kByteValues>;

const Alphabet& alphabet() {
  static const Alphabet kAlphabet = [] {
    constexpr char32_t kFirstFree = 0x100;
    Alphabet made{};
    char32_t next = kFirstFree;
    for (char32_t byte = 0; byte < made.size(); ++byte) {
      const bool printable = (byte > ' ' && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
      made[byte] = printable ? byte : next++;
    }
    return made;
  }();
  return kAlphabet;
}

constexpr PatternText kPatternTexts[] = {
    {WordPattern::gpt2, R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {WordPattern::llama3, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {WordPattern::qwen2, R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                         R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};

constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

bool is_line_end(char32_t code) {
  return code == '\n' || code == '\r';
}

// Returns the end of the run of characters of class `kind` that begins at `at`, limited to `most` characters.
std::size_t run_end(std::string_view text, std::size_t at, CharacterClass kind, std::size_t most = kNoLimit) {
  for (; at < text.size() && most > 0; --most) {
    const Character c = character_at(text, at);
    if (c.kind != kind) {
      break;
    }
    at += c.size;
  }
  return at;
}

// Folds the case of the letters in contractions, including U+017F (long s) to s.
char32_t folded(char32_t code) {
  return code == 0x17f ? 's' : code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

// Returns the length in bytes of the contraction 's, 't, 're, 've, 'm, 'll or 'd at `at`; 0 if there is none.
std::size_t contraction(std::string_view text, std::size_t at, bool any_case) {
  if (text[at] != '\'' || at + 1 >= text.size()) {
    return 0;
  }
  const Character first = character_at(text, at + 1);
  const auto letter = [&](const Character& c) { return any_case ? folded(c.code) : c.code; };
  const char32_t one = letter(first);
  if (one == 's' || one == 't' || one == 'm' || one == 'd') {
    return 1 + first.size;
  }
  if (at + 1 + first.size >= text.size()) {
    return 0;
  }
  const Character second = character_at(text, at + 1 + first.size);
  const char32_t two = letter(second);
  const bool known = (one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l');
  return known ? 1 + first.size + second.size : 0;
}

// Returns the length in bytes of the word that starts a run of white space [at, end): the whole run at the end of the
// text, otherwise the run without its last character, which belongs to the next word.
std::size_t blank_run(std::string_view text, std::size_t at, std::size_t end) {
  if (end == text.size()) {
    return end - at;
  }
  const std::size_t last = end - character_before(text, end).size;
  return last > at ? last - at : end - at;
}

std::size_t gpt2_word(std::string_view text, std::size_t at) {
  if (const std::size_t size = contraction(text, at, /*any_case=*/false); size > 0) {
    return size;
  }
  const Character first = character_at(text, at);
  if (first.code == ' ' && at + 1 < text.size()) {
    if (const Character next = character_at(text, at + 1); next.kind != CharacterClass::space) {
      return run_end(text, at + 1, next.kind) - at;
    }
  }
  const std::size_t end = run_end(text, at, first.kind);
  return first.kind == CharacterClass::space ? blank_run(text, at, end) : end - at;
}

// Returns the length in bytes of a white-space word in patterns that split at line ends: up to the last line end of the
// run. Without a line end, the same as blank_run().
std::size_t blanks_and_lines(std::string_view text, std::size_t at) {
  const std::size_t end = run_end(text, at, CharacterClass::space);
  const std::size_t line_end = text.substr(at, end - at).find_last_of("\r\n");
  return line_end != std::string_view::npos ? line_end + 1 : blank_run(text, at, end);
}

std::size_t llama3_word(std::string_view text, std::size_t at, std::size_t digits) {
  if (const std::size_t size = contraction(text, at, /*any_case=*/true); size > 0) {
    return size;
  }
  const Character first = character_at(text, at);
  if (first.kind == CharacterClass::letter) {
    return run_end(text, at, first.kind) - at;
  }
  if (first.kind == CharacterClass::number) {
    return run_end(text, at, first.kind, digits) - at;
  }
  const std::size_t second = at + first.size;
  const bool more = second < text.size();
  const Character next = more ? character_at(text, second) : Character();
  if (more && next.kind == CharacterClass::letter && !is_line_end(first.code)) {
    return run_end(text, second, CharacterClass::letter) - at;
  }
  const bool blank_in_front = first.code == ' ' && more && next.kind == CharacterClass::other;
  if (first.kind != CharacterClass::other && !blank_in_front) {
    return blanks_and_lines(text, at);
  }
  std::size_t end = run_end(text, second, CharacterClass::other);
  while (end < text.size() && is_line_end(static_cast<unsigned char>(text[end]))) {
    ++end;
  }
  return end - at;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < kFirstBeyondAscii; })) {
    return std::string(text);
  }
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) {
    fail("tokenizer: text cannot be composed (NFC): {}", utf8proc_errmsg(size));
  }
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(composed, std::free);
  return {composed, composed + size};
}

std::string character_of_byte(unsigned char byte) {
  std::string text;
  append_code_point(text, alphabet()[byte]);
  return text;
}

bool spelled_bytes(std::string_view token, std::string& bytes) {
  static const std::unordered_map<char32_t, char> kBytes = [] {
    std::unordered_map<char32_t, char> made;
    for (std::size_t byte = 0; byte < alphabet().size(); ++byte) {
      made.emplace(alphabet()[byte], static_cast<char>(byte));
    }
    return made;
  }();
  bytes.clear();
  for (std::size_t at = 0; at < token.size();) {
    const Character c = character_at(token, at);
    const auto byte = kBytes.find(c.code);
    if (byte == kBytes.end()) {
      return false;
    }
    bytes += byte->second;
    at += c.size;
  }
  return true;
}

std::span<const PatternText> pattern_texts() {
  return kPatternTexts;
}

std::size_t word_length(WordPattern pattern, std::string_view text, std::size_t at) {
  constexpr std::size_t kDigits = 3;
  switch (pattern) {
    case WordPattern::gpt2:
      return gpt2_word(text, at);
    case WordPattern::llama3:
      return llama3_word(text, at, kDigits);
    case WordPattern::qwen2:
      return llama3_word(text, at, 1);
  }
  return text.size() - at;
}

// White space never continues a word of other characters, with one exception: in llama3 and qwen2, line ends continue
// punctuation.
bool ends_word(WordPattern pattern, std::string_view text, std::size_t at) {
  const bool line_end = text[at] == '\n' || text[at] == '\r';
  if (!line_end && text[at] != ' ' && text[at] != '\t') {
    return false;
  }
  const CharacterClass before = character_before(text, at).kind;
  return before != CharacterClass::space &&
         (pattern == WordPattern::gpt2 || !line_end || before != CharacterClass::other);
}

}  // namespace headroom::tokenizers
