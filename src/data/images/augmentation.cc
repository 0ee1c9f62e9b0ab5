#include "augmentation.h"

#include "foundation/core/random.h"
#include "headroom/core/error.h"
#include "planes.h"
#include "rand_augment.h"

namespace headroom::data {
namespace {

std::vector<double> each_channel(const std::vector<double>& given, std::int64_t channels, std::string_view key) {
  if (given.size() > 1 && std::ssize(given) != channels) {
    user_error("data.{}: must be one number or model.image_channels = {}, got {}", key, channels, given.size());
  }
  const std::size_t n = given.size() > 1 ? 1 : static_cast<std::size_t>(channels);
  constexpr double kMiddle = 0.5;
  return given.size() > 1 ? given : std::vector<double>(n, given.empty() ? kMiddle : given.front());
}

// Moved and mirrored as `seed` says, as numbers.
void write_numbers(const Planes& planes, const Picture& picture, std::uint64_t seed, float* out) {
  const std::int64_t side = planes.side;
  Random random(seed);
  const auto moved = [&] {
    return picture.shift == 0
               ? std::int64_t{0}
               : static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * picture.shift + 1))) -
                     picture.shift;
  };
  const std::int64_t down = moved(), right = moved();
  const bool mirrored = picture.flip && random.below(2) == 1;
  for (std::int64_t c = 0; c < planes.channels; ++c) {
    const auto mean = static_cast<float>(picture.mean[static_cast<std::size_t>(c)]),
               factor = static_cast<float>(1.0 / picture.deviation[static_cast<std::size_t>(c)]);
    constexpr float kWhite = 255.0F;
    for (std::int64_t y = 0; y < side; ++y) {
      for (std::int64_t x = 0; x < side; ++x) {
        const std::int64_t row = y - down, column = (mirrored ? side - 1 - x : x) - right;
        const bool inside = row >= 0 && row < side && column >= 0 && column < side;
        const float pixel = inside ? static_cast<float>(planes.at(c, row, column)) / kWhite : 0.0F;
        *out++ = (pixel - mean) * factor;
      }
    }
  }
}

}  // namespace

Picture picture_options(const config::DataOptions& options, std::int64_t channels) {
  return {.mean = each_channel(options.pixel_mean, channels, "pixel_mean"),
          .deviation = each_channel(options.pixel_std, channels, "pixel_std"),
          .centre = options.centre_crop,
          .crop = options.augment_crop,
          .operations = options.randaugment,
          .magnitude = options.randaugment_magnitude,
          .shift = options.augment_shift,
          .flip = options.augment_flip};
}

void draw_picture(const DecodedPicture& from, const Picture& picture, std::int64_t side, std::uint64_t seed,
                  float* out) {
  Random parts(mix(seed, "crop")), operations(mix(seed, "randaugment"));
  const Region region = picture.crop > 0.0 ? random_region(from, picture.crop, parts) : middle(from, picture.centre);
  Planes planes = planes_of(from, region, side);
  rand_augment(planes, {.operations = picture.operations, .magnitude = picture.magnitude}, operations);
  write_numbers(planes, picture, seed, out);
}

}  // namespace headroom::data
