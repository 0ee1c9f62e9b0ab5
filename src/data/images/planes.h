// Square parts of pictures at the size that a model reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "foundation/core/random.h"
#include "pictures.h"

namespace headroom::data {

// The nearest of 0 to 255; a call of the library would take longer than all the rest.
inline std::uint8_t shade(double value) {
  constexpr double kWhite = 255.0, kHalf = 0.5;
  const double up = std::clamp(value, 0.0, kWhite) + kHalf;
  return static_cast<std::uint8_t>(up);
}

// Luma of BT.601, as JPEG has it.
inline std::uint8_t grey_of(int red, int green, int blue) {
  return static_cast<std::uint8_t>((299 * red + 587 * green + 114 * blue + 500) / 1000);
}

// `channels` planes of side x side bytes, row by row.
struct Planes {
  std::int64_t channels = 0, side = 0;
  std::vector<std::uint8_t> pixels;

  std::uint8_t& at(std::int64_t c, std::int64_t y, std::int64_t x) {
    return pixels[static_cast<std::size_t>((c * side + y) * side + x)];
  }
  std::uint8_t at(std::int64_t c, std::int64_t y, std::int64_t x) const {
    return pixels[static_cast<std::size_t>((c * side + y) * side + x)];
  }
};

struct Region {
  std::int64_t x = 0, y = 0, width = 0, height = 0;
};

// The middle square, as wide as this share of the shorter side.
Region middle(const DecodedPicture& picture, double share);

// A part of the picture whose area is drawn evenly from `smallest` (of 1) to all of it, and its width to height evenly
// in logarithms from 3/4 to 4/3 (Szegedy et al. 2015, "Going deeper with convolutions", section 6). Where ten such
// parts do not fit, the largest of these proportions in the middle.
Region random_region(const DecodedPicture& picture, double smallest, Random& random);

// The region made side x side by averaging (a triangle filter as wide as the step, so that small pictures of large ones
// do not flicker).
Planes planes_of(const DecodedPicture& picture, const Region& region, std::int64_t side);

}  // namespace headroom::data
