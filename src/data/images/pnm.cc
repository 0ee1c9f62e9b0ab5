#include "pnm.h"

#include <algorithm>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "planes.h"

namespace headroom::data {
namespace {

constexpr std::string_view kBetween = " \t\n\r";
constexpr std::int64_t kHighestByte = 255;

}  // namespace

std::optional<PnmHeader> pnm_header(const std::string& origin, std::string_view bytes) {
  const bool grey = bytes.starts_with("P5"), colour = bytes.starts_with("P6");
  if ((!grey && !colour) || bytes.size() < 3 || kBetween.find(bytes[2]) == std::string_view::npos) {
    return std::nullopt;
  }
  PnmHeader header{.channels = grey ? 1 : 3};
  std::size_t at = 2;
  for (std::int64_t* number : {&header.width, &header.height, &header.highest}) {
    while (at < bytes.size() && (kBetween.find(bytes[at]) != std::string_view::npos || bytes[at] == '#')) {
      at = bytes[at] == '#' ? std::min(bytes.find('\n', at), bytes.size()) : at + 1;
    }
    const std::size_t end = std::min(bytes.find_first_of(kBetween, at), bytes.size());
    const auto read = whole_number(bytes.substr(at, end - at));
    if (!read || end == bytes.size()) {
      user_error("{}: is a damaged PNM file: its header has no width, height and highest value", origin);
    }
    *number = *read;
    at = end;
  }
  header.pixels = at + 1;
  if (header.highest < 1 || header.highest > kHighestByte) {
    user_error("{}: is a PNM file with values up to {}, which must be from 1 to {}", origin, header.highest,
               kHighestByte);
  }
  return header;
}

DecodedPicture read_pnm(const std::string& origin, std::string_view bytes, const PnmHeader& header,
                        std::int64_t channels) {
  const auto pixels = static_cast<std::size_t>(header.width * header.height),
             needed = pixels * static_cast<std::size_t>(header.channels);
  bytes.remove_prefix(header.pixels);
  if (bytes.size() < needed) {
    user_error("{}: is a damaged PNM file: {} bytes of pixels must follow its header, got {}", origin, needed,
               bytes.size());
  }
  const auto value = [&](std::size_t i) {
    const std::int64_t byte = static_cast<unsigned char>(bytes[i]);
    if (byte > header.highest) {
      user_error("{}: is a damaged PNM file: a value of {}, above its highest, {}", origin, byte, header.highest);
    }
    return static_cast<int>((byte * kHighestByte + header.highest / 2) / header.highest);
  };
  DecodedPicture picture{.width = header.width, .height = header.height, .channels = channels, .pixels = {}};
  picture.pixels.reserve(pixels * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i < pixels; ++i) {
    if (header.channels == 1) {
      picture.pixels.insert(picture.pixels.end(), static_cast<std::size_t>(channels),
                            static_cast<std::uint8_t>(value(i)));
    } else if (channels == 1) {
      picture.pixels.push_back(grey_of(value(3 * i), value(3 * i + 1), value(3 * i + 2)));
    } else {
      for (std::size_t c = 0; c < 3; ++c) {
        picture.pixels.push_back(static_cast<std::uint8_t>(value(3 * i + c)));
      }
    }
  }
  return picture;
}

}  // namespace headroom::data
