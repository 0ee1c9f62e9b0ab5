// PNG, JPEG and PNM files as pixels.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "pictures.h"

namespace headroom::data {

constexpr std::size_t kLargestPicture = std::size_t{64} << 20;  // of a file, in bytes

// What the names of such files end with after a dot, in any case.
constexpr std::array<std::string_view, 6> kPictureEndings = {"jpg", "jpeg", "png", "ppm", "pgm", "pnm"};
bool is_picture_ending(std::string_view ending);

// By what the bytes begin with. `channels` 1: shades of grey, 3: red, green, blue; transparency is laid on black.
// Throws UserError beginning with `origin`: neither PNG, JPEG nor PNM (P5 and P6, up to 255), damaged or cut off,
// more than 2^26 pixels (before any are allocated).
DecodedPicture decode_picture(const std::string& origin, std::string_view bytes, std::int64_t channels);

// The same of a file of at most kLargestPicture bytes, whatever its name.
DecodedPicture read_picture(const std::filesystem::path& path, std::int64_t channels);

}  // namespace headroom::data
