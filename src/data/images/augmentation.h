// What a model is shown of a picture: a part of it at the model's size, changed at random or not, as numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/config/run_options.h"
#include "pictures.h"

namespace headroom::data {

struct Picture {
  std::vector<double> mean, deviation;  // of each channel
  double centre = 1.0;                  // without random crops: the middle square's share of the shorter side
  // Everything below is drawn anew by the seed.
  double crop = 0.0;            // above 0: a random part, of at least this share of the picture's area
  std::int64_t operations = 0;  // of RandAugment, one after the other
  double magnitude = 0.0;       // of them, 0 to 30, where 10 ends AutoAugment's ranges
  std::int64_t shift = 0;       // pixels at most, each way; what comes in is black (0)
  bool flip = false;

  Picture unchanged() const { return {.mean = mean, .deviation = deviation, .centre = centre}; }
};

// As data.pixel_mean and its like say, for so many channels: one value is for all of them, none is 0.5. Throws
// UserError for another number of values.
Picture picture_options(const config::DataOptions& options, std::int64_t channels);

// Channel c of `out`, [channels, side, side], becomes (pixel / 255 - mean[c]) / deviation[c].
void draw_picture(const DecodedPicture& from, const Picture& picture, std::int64_t side, std::uint64_t seed,
                  float* out);

}  // namespace headroom::data
