// PNG and JPEG files as bytes of a square picture.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace headroom::data {

// Rows of pixels, each `channels` bytes next to each other.
struct DecodedPicture {
  std::int64_t width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

// By what the file begins with, whatever its name. `channels` 1: shades of grey, 3: red, green, blue; transparency is
// laid on black. Throws MisuseError naming the file: neither PNG nor JPEG, damaged or cut off, more than 64 MiB, more
// than 2^26 pixels (before any are allocated).
DecodedPicture read_picture(const std::filesystem::path& path, std::int64_t channels);

// The middle square, made `side` pixels wide by averaging (a triangle filter as wide as the step, so that small
// pictures of large ones do not flicker); `channels` planes of side x side.
std::vector<std::uint8_t> square_planes(const DecodedPicture& picture, std::int64_t side);

}  // namespace headroom::data
