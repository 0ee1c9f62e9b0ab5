// Decodes PNG, JPEG and PNM files.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "image_dataset.h"

namespace headroom::data {

constexpr std::size_t kLargestImage = std::size_t{64} << 20;  // file size in bytes

// File name extensions of images, in lower case without the dot.
constexpr std::array<std::string_view, 6> kImageEndings = {"jpg", "jpeg", "png", "ppm", "pgm", "pnm"};
bool is_image_ending(std::string_view ending);  // case-insensitive

// Decodes an image, recognising the format by its content. `channels`: 1 for grey (luma of the stored values), 3 for
// red, green, blue. Applies the orientation in Exif data. Samples of 16 bits are sRGB, as those of 8 bits are.
// Transparency is composited onto black, in linear light. Throws UserError, prefixed with `origin`, if the image is
// neither PNG, JPEG nor PNM (P5 and P6, values up to 255), is corrupt or truncated, or has more than 2^26 pixels
// (checked before allocating).
Image decode_image(const std::string& origin, std::string_view bytes, std::int64_t channels);

// Decodes a file of at most kLargestImage bytes. Ignores its extension.
Image read_image(const std::filesystem::path& path, std::int64_t channels);

}  // namespace headroom::data
