#include "sentencepiece_guard.h"

#include <cstring>

#include "data/tokenizers/message.h"

namespace headroom::tokenizers {
namespace {

// Numbers of fields (sentencepiece_model.proto); the others hold tables.
constexpr std::uint64_t kPiece = 1;                          // of a model, once for each
constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5;  // of a model
constexpr std::uint64_t kCharacterMap = 2;                   // of either

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

// A double-array trie of 32-bit units after its size in bytes, then the strings that its values point to, each ended
// by a NUL. From unit i, the units (i ^ offset) ^ c are looked at for all bytes c, and (i ^ offset) holds the value of
// one that has a leaf. A unit with its highest bit set is a value and never looked from, unless it is the first, from
// which every search begins.
bool is_safe_map(std::string_view map) {
  constexpr std::uint32_t kIsValue = 1U << 31, kHasLeaf = 1U << 8, kWide = 1U << 9, kAllBytes = 0xff;
  if (map.empty()) {
    return true;  // nothing is mapped
  }
  if (map.size() < sizeof(std::uint32_t) || word_at(map, 0) > map.size() - sizeof(std::uint32_t)) {
    return false;
  }
  const std::string_view trie = map.substr(sizeof(std::uint32_t), word_at(map, 0));
  const std::string_view strings = map.substr(sizeof(std::uint32_t) + trie.size());
  const std::size_t n_units = trie.size() / sizeof(std::uint32_t);
  if (n_units == 0 || strings.empty() || strings.back() != '\0') {
    return false;
  }
  for (std::size_t i = 0; i < n_units; ++i) {
    const std::uint32_t unit = word_at(trie, i);
    if (i > 0 && (unit & kIsValue) != 0) {
      continue;
    }
    const std::uint32_t offset = (unit >> 10) << ((unit & kWide) != 0 ? 8 : 0);
    const std::size_t base = i ^ offset;
    if ((base | kAllBytes) >= n_units) {
      return false;
    }
    if ((unit & kHasLeaf) != 0 && (word_at(trie, base) & ~kIsValue) >= strings.size()) {
      return false;
    }
  }
  return true;
}

bool has_safe_maps(std::string_view normalizer) {
  Message fields(normalizer);
  while (!fields.at_end()) {
    if (!fields.next() || (fields.is_bytes(kCharacterMap) && !is_safe_map(fields.bytes()))) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool is_safe_model(std::string_view model) {
  Message fields(model);
  while (!fields.at_end()) {
    if (!fields.next()) {
      return false;
    }
    if ((fields.is_bytes(kNormalizer) || fields.is_bytes(kDenormalizer)) && !has_safe_maps(fields.bytes())) {
      return false;
    }
  }
  return true;
}

std::int64_t count_pieces(std::string_view model) {
  std::int64_t count = 0;
  for (Message fields(model); !fields.at_end() && fields.next();) {
    count += fields.is_bytes(kPiece) ? 1 : 0;
  }
  return count;
}

}  // namespace headroom::tokenizers
