#include "characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::tokenizers {
namespace {

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

}  // namespace

Character character_at(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < kFirstBeyondAscii) {
    return {.code = first, .kind = kind_of(first), .size = 1};
  }
  const auto [code, size] = first_code_point(text.substr(at));
  return {.code = code, .kind = kind_of(code), .size = std::max<std::size_t>(size, 1)};
}

Character character_before(std::string_view text, std::size_t at) {
  --at;
  while (at > 0 && continues_character(text[at])) {
    --at;
  }
  return character_at(text, at);
}

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

}  // namespace headroom::tokenizers
