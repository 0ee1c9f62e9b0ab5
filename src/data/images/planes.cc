#include "planes.h"

#include <algorithm>
#include <cmath>

namespace headroom::data {
namespace {

// What one pixel of the smaller row takes from the larger one.
struct Taps {
  std::int64_t begin = 0;
  std::vector<double> weights;
};

// `from` pixels, beginning at `offset` of a row, become `to`.
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

// As it is.
Planes cut_out(const DecodedPicture& picture, const Region& region) {
  Planes planes{.channels = picture.channels, .side = region.width, .pixels = {}};
  planes.pixels.reserve(static_cast<std::size_t>(picture.channels * region.width * region.height));
  for (std::int64_t c = 0; c < picture.channels; ++c) {
    for (std::int64_t y = region.y; y < region.y + region.height; ++y) {
      for (std::int64_t x = region.x; x < region.x + region.width; ++x) {
        planes.pixels.push_back(
            picture.pixels[static_cast<std::size_t>((y * picture.width + x) * picture.channels + c)]);
      }
    }
  }
  return planes;
}

}  // namespace

Region middle(const DecodedPicture& picture, double share) {
  const std::int64_t shorter = std::min(picture.width, picture.height),
                     square = std::max<std::int64_t>(1, std::llround(static_cast<double>(shorter) * share));
  return {.x = (picture.width - square) / 2, .y = (picture.height - square) / 2, .width = square, .height = square};
}

Region random_region(const DecodedPicture& picture, double smallest, Random& random) {
  constexpr int kTrials = 10;
  const double narrowest = std::log(3.0 / 4.0), widest = std::log(4.0 / 3.0);
  const auto width = static_cast<double>(picture.width), height = static_cast<double>(picture.height);
  for (int trial = 0; trial < kTrials; ++trial) {
    const double area = width * height * (smallest + (1.0 - smallest) * random.uniform()),
                 ratio = std::exp(narrowest + (widest - narrowest) * random.uniform());
    const std::int64_t w = std::llround(std::sqrt(area * ratio)), h = std::llround(std::sqrt(area / ratio));
    if (w >= 1 && w <= picture.width && h >= 1 && h <= picture.height) {
      return {.x = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(picture.width - w + 1))),
              .y = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(picture.height - h + 1))),
              .width = w,
              .height = h};
    }
  }
  const std::int64_t w = std::clamp<std::int64_t>(std::llround(height * std::exp(widest)), 1, picture.width),
                     h = std::clamp<std::int64_t>(std::llround(width / std::exp(narrowest)), 1, picture.height);
  return {.x = (picture.width - w) / 2, .y = (picture.height - h) / 2, .width = w, .height = h};
}

Planes planes_of(const DecodedPicture& picture, const Region& region, std::int64_t side) {
  if (region.width == side && region.height == side) {
    return cut_out(picture, region);
  }
  const std::vector<Taps> across = taps(region.x, region.width, side), down = taps(region.y, region.height, side);
  const std::int64_t first = down.front().begin, c_n = picture.channels;
  const auto rows = static_cast<std::size_t>(down.back().begin - first) + down.back().weights.size();
  Planes planes{.channels = c_n, .side = side, .pixels = {}};
  planes.pixels.resize(static_cast<std::size_t>(c_n * side * side));
  std::vector<double> narrow(rows * static_cast<std::size_t>(side));  // one channel, `side` wide
  for (std::int64_t c = 0; c < c_n; ++c) {
    for (std::size_t y = 0; y < rows; ++y) {
      const std::uint8_t* row = picture.pixels.data() + (first + static_cast<std::int64_t>(y)) * picture.width * c_n;
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

}  // namespace headroom::data
