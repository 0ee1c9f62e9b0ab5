// GPT-2's table: printable bytes of Latin-1 are spelled as themselves, the others as U+0100 and up, in order.
#include <array>
#include <unordered_map>

#include "characters.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/run_options.h"
#include "model.h"

namespace headroom::tokenizers {
namespace {

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

}  // namespace headroom::tokenizers
