#include "message.h"

namespace headroom::tokenizers {
namespace {

std::string serialised_varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  return bytes + static_cast<char>(value);
}

}  // namespace

bool Message::next() {
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

std::optional<std::uint64_t> Message::read_varint() {
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

bool Message::take(std::uint64_t size) {
  if (size > rest_.size()) {
    return false;
  }
  value_ = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return true;
}

std::string bytes_field(std::uint64_t number, std::string_view bytes) {
  constexpr std::uint64_t kOfBytes = 2;
  return serialised_varint(number << 3 | kOfBytes) + serialised_varint(bytes.size()) + std::string(bytes);
}

}  // namespace headroom::tokenizers
