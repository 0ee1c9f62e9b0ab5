#include "sentencepiece_model.h"

#include <cstring>
#include <optional>

#include "data/tokenizers/kinds.h"

namespace headroom::tokenizers {
namespace {

// Iterates over the fields of a serialised protocol buffer message. The bytes are untrusted and not owned.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  // Advances to the next field; false if the bytes are malformed.
  bool next() {
    const std::optional<std::uint64_t> tag = read_varint();
    if (!tag || *tag > UINT32_MAX) {
      return false;
    }
    number_ = *tag >> 3;
    type_ = *tag & 7;
    switch (type_) {
      case kVarint: {
        const std::optional<std::uint64_t> value = read_varint();
        varint_ = value.value_or(0);
        return value.has_value();
      }
      case kFixed64:
        return take(8);
      case kFixed32:
        return take(4);
      case kBytes: {
        const std::optional<std::uint64_t> size = read_varint();
        return size && take(*size);
      }
      default:
        return false;
    }
  }

  std::uint64_t number() const { return number_; }
  bool is_bytes(std::uint64_t number) const { return number_ == number && type_ == kBytes; }
  std::string_view bytes() const { return value_; }
  bool is_varint(std::uint64_t number) const { return number_ == number && type_ == kVarint; }
  std::uint64_t varint() const { return varint_; }
  bool is_fixed32(std::uint64_t number) const { return number_ == number && type_ == kFixed32; }

 private:
  static constexpr std::uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

  std::optional<std::uint64_t> read_varint() {
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
  std::uint64_t number_ = 0, type_ = 0, varint_ = 0;
};

std::string serialised_varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes + static_cast<char>(value);
}

// Serialises a field of type bytes.
std::string bytes_field(std::uint64_t number, std::string_view bytes) {
  constexpr std::uint64_t kOfBytes = 2;
  return serialised_varint(number << 3 | kOfBytes) + serialised_varint(bytes.size()) + std::string(bytes);
}

// Field numbers in sentencepiece_model.proto.
constexpr std::uint64_t kPiece = 1, kTraining = 2;           // of a model
constexpr std::uint64_t kNormalizer = 3, kDenormalizer = 5;  // of a model
constexpr std::uint64_t kCharacterMap = 2;                   // of a normalizer

std::uint32_t word_at(std::string_view bytes, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof word, sizeof word);
  return word;
}

// The format: the size in bytes of a double-array trie, the trie as 32-bit units, then the NUL-terminated strings that
// its values point to. From unit i, a search for byte c visits unit (i ^ offset) ^ c. If unit i has a leaf, unit (i ^
// offset) holds its value. A unit whose highest bit is set is a value; no search continues from it. The exception is
// unit 0, where every search begins.
bool is_safe_map(std::string_view map) {
  constexpr std::uint32_t kIsValue = 1U << 31, kHasLeaf = 1U << 8, kWide = 1U << 9, kAllBytes = 0xff;
  if (map.empty()) {
    return true;  // no normalisation
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

constexpr std::uint64_t kMarkerField = 7210;  // sentencepiece_model.proto reserves fields from 200 on for extensions
constexpr std::string_view kMarker = "headroom: lines together";
constexpr std::uint64_t kStepsField = 7211;

VocabularyPiece parse_piece(std::string_view bytes) {
  VocabularyPiece piece;
  for (Message fields(bytes); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(1)) {
      piece.text = fields.bytes();
    } else if (fields.is_fixed32(2)) {
      std::memcpy(&piece.score, fields.bytes().data(), sizeof piece.score);
    } else if (fields.is_varint(3)) {
      piece.type = static_cast<PieceType>(fields.varint() & 0xff);
    }
  }
  return piece;
}

std::string varint_field(std::uint64_t number, std::uint64_t value) {
  return serialised_varint(number << 3) + serialised_varint(value);
}

std::string piece_field(const VocabularyPiece& piece) {
  std::string score(sizeof piece.score, '\0');
  std::memcpy(score.data(), &piece.score, sizeof piece.score);
  constexpr std::uint64_t kScoreTag = 2 << 3 | 5;  // fixed32
  return bytes_field(kPiece, bytes_field(1, piece.text) + serialised_varint(kScoreTag) + score +
                                 varint_field(3, static_cast<std::uint64_t>(piece.type)));
}

void parse_training(std::string_view bytes, SentencePieceModel& model) {
  constexpr std::uint64_t kBpe = 2;
  for (Message fields(bytes); !fields.at_end() && fields.next();) {
    if (fields.is_varint(3)) {
      model.is_bpe = fields.varint() == kBpe;
    } else if (fields.is_varint(24)) {
      model.blank_is_suffix = fields.varint() != 0;
    } else if (fields.is_bytes(36)) {
      model.required_characters = fields.bytes();
    }
  }
}

void parse_normalizer(std::string_view bytes, SentencePieceModel& model) {
  for (Message fields(bytes); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(kCharacterMap)) {
      model.character_map = fields.bytes();
    } else if (fields.is_varint(3)) {
      model.adds_dummy_prefix = fields.varint() != 0;
    } else if (fields.is_varint(4)) {
      model.removes_extra_blanks = fields.varint() != 0;
    } else if (fields.is_varint(5)) {
      model.escapes_blanks = fields.varint() != 0;
    }
  }
}

const std::string& marker() {
  static const std::string kSerialised = bytes_field(kMarkerField, kMarker);
  return kSerialised;
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

SentencePieceModel parse_sentencepiece(std::string_view model) {
  SentencePieceModel parsed;
  for (Message fields(model); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(kPiece)) {
      parsed.pieces.push_back(parse_piece(fields.bytes()));
    } else if (fields.is_bytes(kTraining)) {
      parse_training(fields.bytes(), parsed);
    } else if (fields.is_bytes(kNormalizer)) {
      parse_normalizer(fields.bytes(), parsed);
    }
  }
  return parsed;
}

std::string serialise(const SentencePieceModel& model) {
  constexpr std::uint64_t kBpe = 2, kByteFallback = 35;
  std::string bytes;
  bool has_bytes = false;
  for (const VocabularyPiece& piece : model.pieces) {
    bytes += piece_field(piece);
    has_bytes = has_bytes || piece.type == PieceType::byte;
  }
  bytes += bytes_field(kTraining, varint_field(3, model.is_bpe ? kBpe : 1) + varint_field(4, model.pieces.size()) +
                                      varint_field(24, model.blank_is_suffix ? 1 : 0) +
                                      varint_field(kByteFallback, has_bytes ? 1 : 0));
  return bytes + bytes_field(kNormalizer, bytes_field(1, "identity") + bytes_field(kCharacterMap, model.character_map) +
                                              varint_field(3, model.adds_dummy_prefix ? 1 : 0) +
                                              varint_field(4, model.removes_extra_blanks ? 1 : 0) +
                                              varint_field(5, model.escapes_blanks ? 1 : 0));
}

Lines lines_of(std::string_view serialised) {
  return serialised.ends_with(marker()) ? Lines::whole_text : Lines::separate;
}

std::string_view without_marker(std::string_view serialised) {
  if (lines_of(serialised) == Lines::separate) {
    return serialised;
  }
  const std::string_view steps = json_steps_of(serialised);
  const std::size_t added = marker().size() + (steps.empty() ? 0 : bytes_field(kStepsField, steps).size());
  return serialised.substr(0, serialised.size() - added);
}

std::string with_json_steps(std::string_view model, std::string_view steps) {
  return std::string(model) + bytes_field(kStepsField, steps) + marker();
}

std::string_view json_steps_of(std::string_view serialised) {
  std::string_view steps;
  for (Message fields(serialised); !fields.at_end() && fields.next();) {
    if (fields.is_bytes(kStepsField)) {
      steps = fields.bytes();
    }
  }
  // with_json_steps() writes the steps between the model and its marker; ignores steps anywhere else.
  return serialised.ends_with(std::string(steps) + marker()) ? steps : std::string_view();
}

VocabularyPiece spare_piece(std::int64_t id) {
  return {.text = fmt::format("<spare {}>", id), .type = PieceType::control};
}

std::string with_spare_pieces(std::string_view serialised, std::int64_t size) {
  const std::string_view model = without_marker(serialised);
  std::string padded(model);
  for (std::int64_t id = count_pieces(model); id < size; ++id) {
    padded += piece_field(spare_piece(id));
  }
  return padded.append(serialised.substr(model.size()));
}

std::string serialised_from_file(std::string model) {
  const bool trained_here = parse_sentencepiece(model).required_characters == kBlankSymbol;
  return trained_here || lines_of(model) == Lines::whole_text ? std::move(model) : std::move(model) + marker();
}

}  // namespace headroom::tokenizers
