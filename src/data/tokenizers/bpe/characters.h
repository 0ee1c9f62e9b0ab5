// What byte-level BPE asks of Unicode: classes of characters, and composed forms (NFC).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom::tokenizers {

// As the patterns of pre-tokenizers have them: \p{L}, \p{N}, \s (the property White_Space), and the rest.
enum class CharacterClass { letter, number, space, other };

struct Character {
  char32_t code = 0;
  CharacterClass kind = CharacterClass::other;
  std::size_t size = 0;  // bytes
};

// The character that begins at `at` < text.size(), and the one that ends there (at > 0). `text` is valid UTF-8.
Character character_at(std::string_view text, std::size_t at);
Character character_before(std::string_view text, std::size_t at);

// Canonical decomposition, then canonical composition. `text` is valid UTF-8.
std::string to_nfc(std::string_view text);

}  // namespace headroom::tokenizers
