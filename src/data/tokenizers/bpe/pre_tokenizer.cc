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

constexpr unsigned char kFirstBeyondAscii = 0x80;

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

}  // namespace

std::string to_nfc(std::string_view text) {
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < kFirstBeyondAscii; })) {
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
    const CodePoint c = first_code_point(token.substr(at));
    const auto byte = kBytes.find(c.code);
    if (byte == kBytes.end()) {
      return false;
    }
    bytes += byte->second;
    at += std::max<std::size_t>(c.size, 1);
  }
  return true;
}

}  // namespace headroom::tokenizers
