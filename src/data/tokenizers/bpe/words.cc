#include "words.h"

#include <string>

#include "characters.h"

namespace headroom::tokenizers {
namespace {

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

// Where the run of characters of one class that begins at `at` ends, after `most` characters at the latest.
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

// Lower case, for the letters of contractions; U+017F is an s in any case.
char32_t folded(char32_t code) {
  return code == 0x17f ? 's' : code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code;
}

// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at `at`; 0: there is none.
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

// Blanks [at, end): all of them at the end of the text, else all but the last, which belongs to what follows.
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

// Blanks from `at` on in the newer patterns: up to the last line end among them, if there is one.
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

// No pattern has a word in which a blank follows anything but blanks; in the newer ones line ends may follow signs.
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
