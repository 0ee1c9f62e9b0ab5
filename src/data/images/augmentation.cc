#include "augmentation.h"

#include <cmath>

#include "headroom/core/error.h"

namespace headroom::data {
namespace {

// The source pixels that contribute to one pixel of a resized row, and their weights.
struct Taps {
  std::int64_t begin = 0;
  std::vector<double> weights;
};

// Returns the taps that resize `from` pixels, starting at `offset` of a row, to `to` pixels.
std::vector<Taps> taps(std::int64_t offset, std::int64_t from, std::int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to), reach = std::max(step, 1.0);
  std::vector<Taps> all(static_cast<std::size_t>(to));
  for (std::int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const auto low = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(centre - reach)));
    const auto high = std::min(from, static_cast<std::int64_t>(std::ceil(centre + reach)));
    Taps& one = all[static_cast<std::size_t>(i)];
    one.begin = offset + low;
    double sum = 0.0;
    for (std::int64_t x = low; x < high; ++x) {
      one.weights.push_back(std::max(0.0, 1.0 - std::abs(static_cast<double>(x) + 0.5 - centre) / reach));
      sum += one.weights.back();
    }
    for (double& weight : one.weights) {
      weight /= sum;
    }
  }
  return all;
}

// Copies a region without resizing it.
Planes cut_out(const Image& image, const Region& region) {
  Planes planes{.channels = image.channels, .side = region.width, .pixels = {}};
  planes.pixels.reserve(static_cast<std::size_t>(image.channels * region.width * region.height));
  for (std::int64_t c = 0; c < image.channels; ++c) {
    for (std::int64_t y = region.y; y < region.y + region.height; ++y) {
      for (std::int64_t x = region.x; x < region.x + region.width; ++x) {
        planes.pixels.push_back(image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels + c)]);
      }
    }
  }
  return planes;
}

std::vector<double> each_channel(const std::vector<double>& given, std::int64_t channels, std::string_view key) {
  if (given.size() > 1 && std::ssize(given) != channels) {
    user_error("data.{}: must be one number or model.image_channels = {}, got {}", key, channels, given.size());
  }
  const std::size_t n = given.size() > 1 ? 1 : static_cast<std::size_t>(channels);
  constexpr double kMiddle = 0.5;
  return given.size() > 1 ? given : std::vector<double>(n, given.empty() ? kMiddle : given.front());
}

// Randomly shifts and mirrors the image, then normalises its pixels.
void normalise(const Planes& planes, const Augmentation& augmentation, std::uint64_t seed, float* out) {
  const std::int64_t side = planes.side;
  Random random(seed);
  const auto random_shift = [&] {
    return augmentation.shift == 0
               ? std::int64_t{0}
               : static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(2 * augmentation.shift + 1))) -
                     augmentation.shift;
  };
  const std::int64_t down = random_shift(), right = random_shift();
  const bool mirrored = augmentation.flip && random.below(2) == 1;
  for (std::int64_t c = 0; c < planes.channels; ++c) {
    const auto mean = static_cast<float>(augmentation.mean[static_cast<std::size_t>(c)]),
               factor = static_cast<float>(1.0 / augmentation.deviation[static_cast<std::size_t>(c)]);
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

Region middle(const Image& image, double share) {
  const std::int64_t shorter = std::min(image.width, image.height),
                     square = std::max<std::int64_t>(1, std::llround(static_cast<double>(shorter) * share));
  return {.x = (image.width - square) / 2, .y = (image.height - square) / 2, .width = square, .height = square};
}

Region random_region(const Image& image, double smallest, Random& random) {
  constexpr int kTrials = 10;
  const double narrowest = std::log(3.0 / 4.0), widest = std::log(4.0 / 3.0);
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  for (int trial = 0; trial < kTrials; ++trial) {
    const double area = width * height * (smallest + (1.0 - smallest) * random.uniform()),
                 ratio = std::exp(narrowest + (widest - narrowest) * random.uniform());
    const std::int64_t w = std::llround(std::sqrt(area * ratio)), h = std::llround(std::sqrt(area / ratio));
    if (w >= 1 && w <= image.width && h >= 1 && h <= image.height) {
      return {.x = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(image.width - w + 1))),
              .y = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(image.height - h + 1))),
              .width = w,
              .height = h};
    }
  }
  const std::int64_t w = std::clamp<std::int64_t>(std::llround(height * std::exp(widest)), 1, image.width),
                     h = std::clamp<std::int64_t>(std::llround(width / std::exp(narrowest)), 1, image.height);
  return {.x = (image.width - w) / 2, .y = (image.height - h) / 2, .width = w, .height = h};
}

Planes planes_of(const Image& image, const Region& region, std::int64_t side) {
  if (region.width == side && region.height == side) {
    return cut_out(image, region);
  }
  const std::vector<Taps> across = taps(region.x, region.width, side), down = taps(region.y, region.height, side);
  const std::int64_t first = down.front().begin, c_n = image.channels;
  const auto rows = static_cast<std::size_t>(down.back().begin - first) + down.back().weights.size();
  Planes planes{.channels = c_n, .side = side, .pixels = {}};
  planes.pixels.resize(static_cast<std::size_t>(c_n * side * side));
  std::vector<double> narrow(rows * static_cast<std::size_t>(side));  // one channel, resized to `side` columns
  for (std::int64_t c = 0; c < c_n; ++c) {
    for (std::size_t y = 0; y < rows; ++y) {
      const std::uint8_t* row = image.pixels.data() + (first + static_cast<std::int64_t>(y)) * image.width * c_n;
      for (std::int64_t x = 0; x < side; ++x) {
        const Taps& tap = across[static_cast<std::size_t>(x)];
        double sum = 0.0;
        for (std::size_t i = 0; i < tap.weights.size(); ++i) {
          sum += tap.weights[i] * row[(tap.begin + static_cast<std::int64_t>(i)) * c_n + c];
        }
        narrow[y * static_cast<std::size_t>(side) + static_cast<std::size_t>(x)] = sum;
      }
    }
    for (std::int64_t y = 0; y < side; ++y) {
      const Taps& tap = down[static_cast<std::size_t>(y)];
      for (std::int64_t x = 0; x < side; ++x) {
        double sum = 0.0;
        for (std::size_t i = 0; i < tap.weights.size(); ++i) {
          sum += tap.weights[i] *
                 narrow[(static_cast<std::size_t>(tap.begin - first) + i) * static_cast<std::size_t>(side) +
                        static_cast<std::size_t>(x)];
        }
        planes.at(c, y, x) = shade(sum);
      }
    }
  }
  return planes;
}

Augmentation augmentation_options(const config::DataOptions& options, std::int64_t channels) {
  return {.mean = each_channel(options.pixel_mean, channels, "pixel_mean"),
          .deviation = each_channel(options.pixel_std, channels, "pixel_std"),
          .centre = options.centre_crop,
          .crop = options.augment_crop,
          .operations = options.randaugment,
          .magnitude = options.randaugment_magnitude,
          .shift = options.augment_shift,
          .flip = options.augment_flip};
}

void augment(const Image& from, const Augmentation& augmentation, std::int64_t side, std::uint64_t seed, float* out) {
  Random parts(mix(seed, "crop")), operations(mix(seed, "randaugment"));
  const Region region =
      augmentation.crop > 0.0 ? random_region(from, augmentation.crop, parts) : middle(from, augmentation.centre);
  Planes planes = planes_of(from, region, side);
  rand_augment(planes, augmentation.operations, augmentation.magnitude, operations);
  normalise(planes, augmentation, seed, out);
}

}  // namespace headroom::data
