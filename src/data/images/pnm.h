// Portable pixmaps of bytes: P5, shades of grey, and P6, red, green, blue.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "pictures.h"

namespace headroom::data {

struct PnmHeader {
  std::int64_t width = 0, height = 0, channels = 0, highest = 0;
  std::size_t pixels = 0;  // where they begin
};

// Nothing where the bytes begin with neither P5 nor P6 and a blank. Throws UserError beginning with `origin` for
// numbers that are none, and pixels of more than a byte.
std::optional<PnmHeader> pnm_header(const std::string& origin, std::string_view bytes);

// The pixels, from 0 to 255, as `channels` each. Throws UserError where they are fewer or brighter than the header
// says.
DecodedPicture read_pnm(const std::string& origin, std::string_view bytes, const PnmHeader& header,
                        std::int64_t channels);

}  // namespace headroom::data
