#include "headroom/data/images.h"

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/random.h"

namespace headroom::data {
namespace {

std::vector<double> each_channel(const std::vector<double>& given, std::int64_t channels, std::string_view key) {
  if (given.size() > 1 && std::ssize(given) != channels) {
    misuse("data.{}: must be one number or model.image_channels = {}, got {}", key, channels, given.size());
  }
  const std::size_t n = given.size() > 1 ? 1 : static_cast<std::size_t>(channels);
  constexpr double kMiddle = 0.5;
  return given.size() > 1 ? given : std::vector<double>(n, given.empty() ? kMiddle : given.front());
}

}  // namespace

std::span<const std::uint8_t> ImageSet::at(std::int64_t i) const {
  return std::span(pixels_).subspan(static_cast<std::size_t>(i * bytes_each()), static_cast<std::size_t>(bytes_each()));
}

void ImageSet::add(std::span<const std::uint8_t> pixels, std::int32_t label) {
  if (std::ssize(pixels) != bytes_each()) {
    fail("pictures: {} bytes make none of {} channels, {} x {}", pixels.size(), channels_, size_, size_);
  }
  pixels_.insert(pixels_.end(), pixels.begin(), pixels.end());
  labels_.push_back(label);
}

std::string ImageSet::identity() const {
  constexpr std::size_t kDigits = 16;
  Sha256 hash;
  hash.update(std::as_bytes(std::span(pixels_)));
  hash.update(std::as_bytes(std::span(labels_)));
  return fmt::format("{} pictures, {}", size(), hash.hex().substr(0, kDigits));
}

Picture picture_options(const config::DataOptions& options, std::int64_t channels) {
  return {.mean = each_channel(options.pixel_mean, channels, "pixel_mean"),
          .deviation = each_channel(options.pixel_deviation, channels, "pixel_deviation"),
          .shift = options.augment_shift,
          .flip = options.augment_flip};
}

void copy_picture(const ImageSet& set, std::int64_t i, const Picture& picture, std::uint64_t seed, float* out) {
  const std::int64_t side = set.side();
  Random random(seed);
  const auto moved = [&] {
    return picture.shift == 0
               ? std::int64_t{0}
               : static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * picture.shift + 1))) -
                     picture.shift;
  };
  const std::int64_t down = moved(), right = moved();
  const bool mirrored = picture.flip && random.below(2) == 1;
  const std::span<const std::uint8_t> pixels = set.at(i);
  for (std::int64_t c = 0; c < set.channels(); ++c) {
    const auto mean = static_cast<float>(picture.mean[static_cast<std::size_t>(c)]),
               factor = static_cast<float>(1.0 / picture.deviation[static_cast<std::size_t>(c)]);
    constexpr float kWhite = 255.0F;
    for (std::int64_t y = 0; y < side; ++y) {
      for (std::int64_t x = 0; x < side; ++x) {
        const std::int64_t row = y - down, column = (mirrored ? side - 1 - x : x) - right;
        const bool inside = row >= 0 && row < side && column >= 0 && column < side;
        const auto place = static_cast<std::size_t>((c * side + row) * side + column);
        *out++ = ((inside ? static_cast<float>(pixels[place]) / kWhite : 0.0F) - mean) * factor;
      }
    }
  }
}

}  // namespace headroom::data
