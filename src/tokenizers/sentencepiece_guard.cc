#include "tokenizers/sentencepiece_guard.h"

#include <cstring>
#include <optional>

namespace headroom::tokenizers {
namespace {

// Numbers of fields (sentencepiece_model.proto); the others hold tables.
constexpr std::uint64_t kPiece = 1;                          // of a model, once for each
constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5;  // of a model
constexpr std::uint64_t kCharacterMap = 2;                   // of either

constexpr std::uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

// The fields of a serialised message, one after the other.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }

  // Goes to the next field; false when the bytes are no message.
  bool next() {
    const std::optional<std::uint64_t> tag = varint();
    if (!tag || *tag > UINT32_MAX) {
      return false;
    }
    number_ = *tag >> 3;
    type_ = *tag & 7;
    switch (type_) {
      case kVarint:
        return varint().has_value();
      case kFixed64:
        return take(8);
      case kFixed32:
        return take(4);
      case kBytes: {
        const std::optional<std::uint64_t> size = varint();
        return size && take(*size);
      }
      default:
        return false;
    }
  }

  bool is_bytes(std::uint64_t number) const { return number_ == number && type_ == kBytes; }
  std::string_view bytes() const { return value_; }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    return std::nullopt;
  }

  bool take(std::uint64_t size) {
    if (size > rest_.size()) {
      return false;
    }
    value_ = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_, value_;
  std::uint64_t number_ = 0, type_ = 0;
};

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
