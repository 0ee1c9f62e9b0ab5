// RandAugment (Cubuk et al. 2020, "RandAugment: Practical automated data augmentation with a reduced search space"): of
// 14 operations some are drawn, all with one magnitude, and carried out one after the other.
#pragma once

#include <cstdint>

#include "foundation/core/random.h"
#include "planes.h"

namespace headroom::data {

enum class Operation {
  identity,
  auto_contrast,  // each channel stretched from 0 to 255
  equalize,       // each channel so that all brightnesses are as frequent
  rotate,         // by an angle in degrees, clockwise
  solarize,       // what is at least as bright as a threshold is inverted
  color,          // factor: 0 is grey, 1 as it is, above 1 more colourful
  posterize,      // to so many bits
  contrast,       // factor: 0 is the mean grey
  brightness,     // factor: 0 is black
  sharpness,      // factor: 0 is smoothed
  shear_x,        // so many pixels to the left for each row from the top
  shear_y,        // so many pixels upwards for each column from the left
  translate_x,    // by pixels, to the left
  translate_y,    // by pixels, upwards
};
inline constexpr std::int64_t kOperations = 14;

// With `value` as said above. What comes in from outside is grey, 128; pixels are taken from the nearest one.
void carry_out(Operation operation, double value, Planes& planes);

// The value of magnitude 0 to 30: from nothing at 0 in a straight line to the end of AutoAugment's range at 10 (Cubuk
// et al. 2019, table 6), and on; a factor is at least 0, a picture keeps one bit, and a threshold ends at 0.
// `opposite`: to the other side, where there is one.
double value_of(Operation operation, double magnitude, bool opposite, std::int64_t side);

struct RandAugment {
  std::int64_t operations = 0;
  double magnitude = 0.0;
};
void rand_augment(Planes& planes, const RandAugment& options, Random& random);

}  // namespace headroom::data
