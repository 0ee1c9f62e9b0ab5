// Serialised protocol buffer messages, of which SentencePiece's models are made, field by field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace headroom::tokenizers {

// The fields of a serialised message, one after the other. It views the bytes, which may be hostile.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  // Goes to the next field; false when the bytes are no message.
  bool next();

  std::uint64_t number() const { return number_; }
  bool is_bytes(std::uint64_t number) const { return number_ == number && type_ == kBytes; }
  std::string_view bytes() const { return value_; }
  bool is_varint(std::uint64_t number) const { return number_ == number && type_ == kVarint; }
  std::uint64_t varint() const { return varint_; }
  bool is_fixed32(std::uint64_t number) const { return number_ == number && type_ == kFixed32; }

 private:
  static constexpr std::uint64_t kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5;

  std::optional<std::uint64_t> read_varint();
  bool take(std::uint64_t size);

  std::string_view rest_, value_;
  std::uint64_t number_ = 0, type_ = 0, varint_ = 0;
};

// A field of bytes, serialised.
std::string bytes_field(std::uint64_t number, std::string_view bytes);

}  // namespace headroom::tokenizers
