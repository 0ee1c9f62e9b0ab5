// Turns an image into a model input: a crop at the model's resolution, optionally augmented, as normalised floats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "foundation/core/random.h"
#include "headroom/config/run_options.h"
#include "image_dataset.h"

namespace headroom::data {

// Rounds to the nearest integer from 0 to 255. Written out because a library call would dominate the run time.
inline std::uint8_t shade(double value) {
  constexpr double kWhite = 255.0, kHalf = 0.5;
  const double up = std::clamp(value, 0.0, kWhite) + kHalf;
  return static_cast<std::uint8_t>(up);
}

// Returns the luma of BT.601, which JPEG uses.
inline std::uint8_t grey_of(int red, int green, int blue) {
  return static_cast<std::uint8_t>((299 * red + 587 * green + 114 * blue + 500) / 1000);
}

// A square image stored as planes of `channels` x side x side bytes.
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
// Returns the central square. Its side is this fraction of the shorter side of the image.
Region middle(const Image& image, double share);
// Returns a random crop. Its area is uniform between `smallest` (a fraction of the image) and the whole image; the
// logarithm of its aspect ratio is uniform between log(3/4) and log(4/3) (Szegedy et al. 2015, "Going deeper with
// convolutions", section 6). If ten draws do not fit, returns the largest central region within these aspect ratios.
Region random_region(const Image& image, double smallest, Random& random);
// Resizes a region to side x side with a triangle filter, which averages when shrinking to avoid aliasing.
Planes planes_of(const Image& image, const Region& region, std::int64_t side);

// The operations of RandAugment (Cubuk et al. 2020, "RandAugment: Practical automated data augmentation with a reduced
// search space").
enum class Operation {
  identity,
  auto_contrast,  // stretches each channel to 0..255
  equalize,       // equalises the histogram of each channel
  rotate,         // by an angle in degrees, clockwise
  solarize,       // inverts pixels at or above a threshold
  color,          // saturation factor: 0 is grey, 1 the original
  posterize,      // number of bits kept
  contrast,       // factor: 0 is the mean grey, 1 the original
  brightness,     // factor: 0 is black, 1 the original
  sharpness,      // factor: 0 is smoothed, 1 the original
  shear_x,        // shift to the left in pixels per row, from the top
  shear_y,        // shift up in pixels per column, from the left
  translate_x,    // shift to the left in pixels
  translate_y,    // shift up in pixels
};
inline constexpr std::int64_t kOperations = 14;

// Applies an operation in place; Operation documents `value`. Uses nearest-neighbour sampling and fills with grey
// (128).
void apply(Operation operation, double value, Planes& planes);
// Returns the value for a magnitude from 0 to 30: linear from no effect at 0 to the end of AutoAugment's range at 10
// (Cubuk et al. 2019, table 6), and extrapolated above. Factors and thresholds are at least 0; posterize keeps at least
// one bit. `opposite` selects the other direction if the operation has two.
double value_of(Operation operation, double magnitude, bool opposite, std::int64_t side);
// Applies this number of random operations in turn.
void rand_augment(Planes& planes, std::int64_t operations, double magnitude, Random& random);

struct Augmentation {
  std::vector<double> mean, deviation;  // one value per channel
  double centre = 1.0;                  // without random crops: central square, as a fraction of the shorter side
  // Random augmentation:
  double crop = 0.0;            // minimum area of a random crop as a fraction of the image; 0: no random crop
  std::int64_t operations = 0;  // number of RandAugment operations
  double magnitude = 0.0;       // RandAugment magnitude, 0 to 30
  std::int64_t shift = 0;       // maximum shift in pixels along each axis; filled with black
  bool flip = false;

  Augmentation without_changes() const { return {.mean = mean, .deviation = deviation, .centre = centre}; }
};

// Converts data.pixel_mean and the related options to this number of channels. A single value applies to all channels;
// the default is 0.5. Throws UserError for any other number of values.
Augmentation augmentation_options(const config::DataOptions& options, std::int64_t channels);

// Writes the augmented image to `out`, [channels, side, side], normalised as (pixel / 255 - mean[c]) / deviation[c].
// Deterministic in `seed`.
void augment(const Image& from, const Augmentation& augmentation, std::int64_t side, std::uint64_t seed, float* out);

}  // namespace headroom::data
