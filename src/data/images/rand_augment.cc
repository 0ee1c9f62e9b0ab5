// RandAugment's operations, as Pillow and AutoAugment define them. They are here for Table 8 of the DCMHA paper: its
// ViT baseline (Big Vision, ViT-S/16) trains with them.
#include "augmentation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace headroom::data {
namespace {

constexpr int kShades = 256;
using Table = std::array<std::uint8_t, kShades>;

std::int64_t nearest(double place) {
  const double up = place + 0.5;
  const auto whole = static_cast<std::int64_t>(up);
  return up < static_cast<double>(whole) ? whole - 1 : whole;
}

std::span<std::uint8_t> plane(Planes& planes, std::int64_t c) {
  const auto area = static_cast<std::size_t>(planes.side * planes.side);
  return std::span(planes.pixels).subspan(static_cast<std::size_t>(c) * area, area);
}

template <class Shade>
void each_shade(Planes& planes, const Shade& becomes) {
  Table table;
  for (int i = 0; i < kShades; ++i) {
    table[static_cast<std::size_t>(i)] = becomes(static_cast<std::uint8_t>(i));
  }
  for (std::uint8_t& pixel : planes.pixels) {
    pixel = table[pixel];
  }
}

void auto_contrast(std::span<std::uint8_t> channel) {
  const auto [low, high] = std::ranges::minmax_element(channel);
  const double darkest = *low, brightest = *high;
  if (brightest > darkest) {
    for (std::uint8_t& pixel : channel) {
      pixel = shade((pixel - darkest) * (kShades - 1) / (brightest - darkest));
    }
  }
}

// Maps each shade to the number of darker pixels divided by `step`, 1/255 of the pixels below the brightest shade.
void equalize(std::span<std::uint8_t> channel) {
  std::array<std::int64_t, kShades> counts{};
  for (const std::uint8_t pixel : channel) {
    ++counts[pixel];
  }
  const auto brightest = std::find_if(counts.rbegin(), counts.rend(), [](std::int64_t n) { return n > 0; });
  const std::int64_t step = (std::ssize(channel) - *brightest) / (kShades - 1);
  if (step == 0) {
    return;
  }
  Table table;
  std::int64_t darker = step / 2;
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<std::uint8_t>(std::min<std::int64_t>(darker / step, kShades - 1));
    darker += counts[i];
  }
  for (std::uint8_t& pixel : channel) {
    pixel = table[pixel];
  }
}

// Returns the grey value of every pixel.
std::vector<std::uint8_t> greys(const Planes& planes) {
  const auto area = static_cast<std::size_t>(planes.side * planes.side);
  std::vector<std::uint8_t> grey(planes.pixels.begin(), planes.pixels.begin() + static_cast<std::ptrdiff_t>(area));
  if (planes.channels == 3) {
    const std::vector<std::uint8_t>& all = planes.pixels;
    for (std::size_t i = 0; i < area; ++i) {
      grey[i] = grey_of(all[i], all[area + i], all[2 * area + i]);
    }
  }
  return grey;
}

// Interpolates between `plain` (factor 0) and the image (factor 1); other factors extrapolate. `plain` has the size of
// the image, or of one channel that is used for all channels.
void blend(Planes& planes, std::span<const std::uint8_t> plain, double factor) {
  for (std::size_t begin = 0; begin < planes.pixels.size(); begin += plain.size()) {
    std::uint8_t* const pixels = planes.pixels.data() + begin;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      const double from = plain[i];
      pixels[i] = shade(from + factor * (pixels[i] - from));
    }
  }
}

void contrast(Planes& planes, double factor) {
  const std::vector<std::uint8_t> grey = greys(planes);
  const double sum = std::accumulate(grey.begin(), grey.end(), 0.0),
               mean = shade(sum / static_cast<double>(grey.size()));
  each_shade(planes, [&](std::uint8_t pixel) { return shade(mean + factor * (pixel - mean)); });
}

// The smoothing kernel has weight 5 at the centre and 1 at its neighbours, divided by 13. The margin is unchanged.
void sharpness(Planes& planes, double factor) {
  constexpr double kMiddle = 5.0, kSum = 13.0;
  const Planes original = planes;
  for (std::int64_t c = 0; c < planes.channels; ++c) {
    for (std::int64_t y = 1; y + 1 < planes.side; ++y) {
      for (std::int64_t x = 1; x + 1 < planes.side; ++x) {
        double sum = (kMiddle - 1.0) * original.at(c, y, x);
        for (std::int64_t place = 0; place < 9; ++place) {
          sum += original.at(c, y + place / 3 - 1, x + place % 3 - 1);
        }
        planes.at(c, y, x) = shade(sum / kSum);
      }
    }
  }
  const Planes smooth = std::exchange(planes, original);
  blend(planes, smooth.pixels, factor);
}

// The pixel at (x, y) is read from (xx x + xy y + x0, yx x + yy y + y0).
struct Affine {
  double xx = 1.0, xy = 0.0, x0 = 0.0;
  double yx = 0.0, yy = 1.0, y0 = 0.0;
};

void warp(Planes& planes, const Affine& from) {
  constexpr std::uint8_t kGrey = 128;
  const Planes original = planes;
  const std::int64_t side = planes.side;
  for (std::int64_t y = 0; y < side; ++y) {
    for (std::int64_t x = 0; x < side; ++x) {
      const auto column = static_cast<double>(x), row = static_cast<double>(y);
      const std::int64_t there_x = nearest(from.xx * column + from.xy * row + from.x0),
                         there_y = nearest(from.yx * column + from.yy * row + from.y0);
      const bool inside = there_x >= 0 && there_x < side && there_y >= 0 && there_y < side;
      for (std::int64_t c = 0; c < planes.channels; ++c) {
        planes.at(c, y, x) = inside ? original.at(c, there_y, there_x) : kGrey;
      }
    }
  }
}

void rotate(Planes& planes, double degrees) {
  const double angle = degrees * std::numbers::pi / 180.0, cosine = std::cos(angle), sine = std::sin(angle),
               middle = static_cast<double>(planes.side - 1) / 2.0;
  warp(planes, {.xx = cosine,
                .xy = sine,
                .x0 = middle - cosine * middle - sine * middle,
                .yx = -sine,
                .yy = cosine,
                .y0 = middle + sine * middle - cosine * middle});
}

}  // namespace

void apply(Operation operation, double value, Planes& planes) {
  switch (operation) {
    case Operation::identity:
      return;
    case Operation::auto_contrast:
    case Operation::equalize:
      for (std::int64_t c = 0; c < planes.channels; ++c) {
        operation == Operation::equalize ? equalize(plane(planes, c)) : auto_contrast(plane(planes, c));
      }
      return;
    case Operation::rotate:
      return rotate(planes, value);
    case Operation::solarize:
      return each_shade(planes, [&](std::uint8_t pixel) {
        return static_cast<std::uint8_t>(pixel < value ? pixel : kShades - 1 - pixel);
      });
    case Operation::color:
      return blend(planes, greys(planes), value);
    case Operation::posterize:
      return each_shade(planes, [&](std::uint8_t pixel) {
        return static_cast<std::uint8_t>(pixel & 0xff00 >> static_cast<int>(value));
      });
    case Operation::contrast:
      return contrast(planes, value);
    case Operation::brightness:
      return each_shade(planes, [&](std::uint8_t pixel) { return shade(pixel * value); });
    case Operation::sharpness:
      return sharpness(planes, value);
    case Operation::shear_x:
      return warp(planes, {.xy = value});
    case Operation::shear_y:
      return warp(planes, {.yx = value});
    case Operation::translate_x:
      return warp(planes, {.x0 = value});
    case Operation::translate_y:
      return warp(planes, {.y0 = value});
  }
}

double value_of(Operation operation, double magnitude, bool opposite, std::int64_t side) {
  constexpr double kMost = 10.0, kDegrees = 30.0, kShear = 0.3, kFactor = 0.9, kBits = 4.0, kPixels = 150.0,
                   kOfPixels = 331.0;  // AutoAugment's image size
  const double part = magnitude / kMost, sign = opposite ? -1.0 : 1.0;
  switch (operation) {
    case Operation::rotate:
      return sign * part * kDegrees;
    case Operation::shear_x:
    case Operation::shear_y:
      return sign * part * kShear;
    case Operation::translate_x:
    case Operation::translate_y:
      return sign * part * kPixels / kOfPixels * static_cast<double>(side);
    case Operation::solarize:
      return std::max(0.0, (1.0 - part) * kShades);
    case Operation::posterize:
      return std::max(1.0, 8.0 - std::round(part * kBits));
    case Operation::color:
    case Operation::contrast:
    case Operation::brightness:
    case Operation::sharpness:
      return std::max(0.0, 1.0 + sign * part * kFactor);
    case Operation::identity:
    case Operation::auto_contrast:
    case Operation::equalize:
      break;
  }
  return 0.0;
}

void rand_augment(Planes& planes, std::int64_t operations, double magnitude, Random& random) {
  for (std::int64_t i = 0; i < operations; ++i) {
    const auto operation = static_cast<Operation>(random.below(static_cast<std::uint64_t>(kOperations)));
    const bool opposite = random.below(2) == 1;
    apply(operation, value_of(operation, magnitude, opposite, planes.side), planes);
  }
}

}  // namespace headroom::data
