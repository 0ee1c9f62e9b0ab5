// Writes UTF-8 characters for tests, independently of core/text/utf8.h, which is tested against them.
#pragma once

#include <cstdint>
#include <string>

#include "foundation/core/random.h"

namespace headroom {

inline void append_character(std::string& text, std::uint32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xe0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xf0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Returns random characters from all ranges, without NUL and surrogates.
inline std::string random_unicode(Random& random, std::size_t characters) {
  std::string text;
  for (std::size_t i = 0; i < characters; ++i) {
    constexpr std::uint32_t kEnds[] = {0x80, 0x800, 0x10000, 0x110000};
    std::uint32_t code = 0;
    do {
      code = static_cast<std::uint32_t>(random.below(kEnds[random.below(4)]));
    } while (code == 0 || (code >= 0xd800 && code < 0xe000));
    append_character(text, code);
  }
  return text;
}

}  // namespace headroom
