#include "data/images/augmentation.h"

#include <cmath>

#include "image_files.h"

namespace headroom::data::augmentation_test {

std::vector<std::uint8_t> square(const Image& image, std::int64_t side) {
  return planes_of(image, middle(image, 1.0), side).pixels;
}

TEST(ImageCrops, KeepsImagesOfTheRightSize) {
  const Image image = gradient(5, 5);
  const std::vector<std::uint8_t> planes = square(image, 5);
  for (std::size_t i = 0; i < 25; ++i) {
    EXPECT_EQ(planes[i], image.pixels[3 * i]);
    EXPECT_EQ(planes[25 + i], image.pixels[3 * i + 1]);
    EXPECT_EQ(planes[50 + i], 77);
  }
}

TEST(ImageCrops, TakesTheMiddleAndAverages) {
  // The image is white, except for a central square that is a checkerboard of single pixels.
  Image image{.width = 24, .height = 8, .channels = 1, .pixels = {}};
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 24; ++x) {
      image.pixels.push_back(x < 8 || x >= 16 || (x + y) % 2 == 0 ? 255 : 0);
    }
  }
  for (const std::uint8_t pixel : square(image, 2)) {
    EXPECT_NEAR(pixel, 127.5, 1.0);
  }
  // Enlarging a gradient gives a gradient.
  const std::vector<std::uint8_t> larger = square(gradient(4, 4), 8);
  EXPECT_TRUE(std::is_sorted(larger.begin(), larger.begin() + 8));
  EXPECT_EQ(larger[0], 0);
  EXPECT_EQ(larger[7], 255);
}

TEST(ImageCrops, TakesTheMiddleInAnyShare) {
  const Region region = middle(gradient(500, 256), 0.875);
  EXPECT_EQ(region.width, 224);
  EXPECT_EQ(region.height, 224);
  EXPECT_EQ(region.x, 138);
  EXPECT_EQ(region.y, 16);
  const Planes cut = planes_of(gradient(500, 256), region, 224);
  EXPECT_EQ(cut.at(1, 0, 0), 16) << "rows as they are";
  EXPECT_EQ(cut.at(1, 223, 5), 239);
}

TEST(ImageCrops, RandomOnesFitAndHaveTheirAreaAndShape) {
  const Image image = gradient(400, 300);
  Random random(4);
  double areas = 0.0, smallest = 1.0, largest = 0.0;
  constexpr int kDraws = 4000;
  std::set<std::int64_t> places;
  for (int i = 0; i < kDraws; ++i) {
    const Region r = random_region(image, 0.2, random);
    ASSERT_TRUE(r.x >= 0 && r.y >= 0 && r.x + r.width <= 400 && r.y + r.height <= 300);
    const double area = static_cast<double>(r.width * r.height) / (400.0 * 300.0),
                 shape = static_cast<double>(r.width) / static_cast<double>(r.height);
    EXPECT_GT(area, 0.195);
    EXPECT_GT(shape, 0.73);
    EXPECT_LT(shape, 1.37);
    areas += area / kDraws;
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    places.insert(r.x);
  }
  EXPECT_NEAR(areas, 0.5, 0.05) << "below the middle of 0.2 and 1: of the large ones fewer fit";
  EXPECT_LT(smallest, 0.21);
  EXPECT_GT(largest, 0.95);
  EXPECT_GT(places.size(), 150U);
  // No crop fits, so the region is the largest central one.
  const Region strip = random_region(gradient(1000, 3), 1.0, random);
  EXPECT_EQ(strip.height, 3);
  EXPECT_EQ(strip.width, 4);
  EXPECT_EQ(strip.x, 498);
}

// `channels` is 1 for grey and 3 for colours.
Planes planes(std::int64_t channels, std::int64_t side, std::vector<std::uint8_t> pixels) {
  return {.channels = channels, .side = side, .pixels = std::move(pixels)};
}

std::vector<std::uint8_t> after(Operation operation, double value, Planes from) {
  apply(operation, value, from);
  return from.pixels;
}

using Bytes = std::vector<std::uint8_t>;
const Bytes kNine = {0, 10, 20, 30, 40, 50, 60, 70, 80};

TEST(RandAugmentOperation, Shades) {
  const Planes four = planes(1, 2, {50, 100, 150, 250});
  EXPECT_EQ(after(Operation::identity, 0, four), four.pixels);
  EXPECT_EQ(after(Operation::auto_contrast, 0, four), (Bytes{0, 64, 128, 255}));  // (v - 50) * 255 / 200
  EXPECT_EQ(after(Operation::auto_contrast, 0, planes(1, 2, {9, 9, 9, 9})), (Bytes{9, 9, 9, 9}));
  EXPECT_EQ(after(Operation::solarize, 128, four), (Bytes{50, 100, 105, 5}));
  EXPECT_EQ(after(Operation::solarize, 256, four), four.pixels);
  EXPECT_EQ(after(Operation::solarize, 0, four), (Bytes{205, 155, 105, 5}));
  EXPECT_EQ(after(Operation::posterize, 8, four), four.pixels);
  EXPECT_EQ(after(Operation::posterize, 4, four), (Bytes{48, 96, 144, 240}));
  EXPECT_EQ(after(Operation::posterize, 1, four), (Bytes{0, 0, 128, 128}));
  EXPECT_EQ(after(Operation::brightness, 0.5, four), (Bytes{25, 50, 75, 125}));
  EXPECT_EQ(after(Operation::brightness, 1.9, four), (Bytes{95, 190, 255, 255}));
  EXPECT_EQ(after(Operation::contrast, 0.0, four), (Bytes{138, 138, 138, 138}));  // the pixels' mean is 137.5
  EXPECT_EQ(after(Operation::contrast, 0.5, four), (Bytes{94, 119, 144, 194}));
  EXPECT_EQ(after(Operation::contrast, 1.9, four), (Bytes{0, 66, 161, 255}));
}

// The algorithm is Pillow's, computed by hand for an image with few shades.
TEST(RandAugmentOperation, EqualizeMakesAllShadesAsFrequent) {
  Bytes pixels(32 * 32);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(std::min<std::size_t>(i / 8, 100));  // 8 pixels a shade, more of the last
  }
  const Bytes flat = after(Operation::equalize, 0, planes(1, 32, pixels));
  // 800 pixels are darker than the brightest shade, so a step is 800 / 255 = 3 pixels.
  for (const std::size_t shade : {0, 1, 2, 50, 95}) {
    EXPECT_EQ(flat[shade * 8], std::min<std::size_t>(255, (8 * shade + 1) / 3)) << shade;
  }
  EXPECT_EQ(flat.back(), 255);
  EXPECT_EQ(after(Operation::equalize, 0, planes(1, 3, kNine)), kNine) << "too few pixels for a step";
}

TEST(RandAugmentOperation, ColorGoesFromGreyToMore) {
  const Planes one = planes(3, 1, {200, 100, 50});
  const int grey = 124;  // 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2
  EXPECT_EQ(after(Operation::color, 0.0, one), (Bytes{124, 124, 124}));
  EXPECT_EQ(after(Operation::color, 1.0, one), one.pixels);
  EXPECT_EQ(after(Operation::color, 1.5, one),
            (Bytes{static_cast<std::uint8_t>(grey + 114), static_cast<std::uint8_t>(grey - 36),
                   static_cast<std::uint8_t>(grey - 111)}));
  EXPECT_EQ(after(Operation::color, 0.0, planes(1, 1, {7})), (Bytes{7}));
  // Contrast uses the mean of the grey values for all channels.
  EXPECT_EQ(after(Operation::contrast, 0.0, one), (Bytes{124, 124, 124}));
}

TEST(RandAugmentOperation, SharpnessSmoothsAllButTheMargin) {
  Bytes expected = kNine;
  expected[4] = 40;  // smoothing keeps the middle of a slope
  EXPECT_EQ(after(Operation::sharpness, 0.0, planes(1, 3, kNine)), expected);
  const Planes spot = planes(1, 3, {0, 0, 0, 0, 130, 0, 0, 0, 0});
  EXPECT_EQ(after(Operation::sharpness, 0.0, spot)[4], 50);  // 130 * 5 / 13
  EXPECT_EQ(after(Operation::sharpness, 1.0, spot), spot.pixels);
  EXPECT_EQ(after(Operation::sharpness, 1.5, spot)[4], 170);
  const Planes two = planes(1, 3, {130, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_EQ(after(Operation::sharpness, 0.0, two), (Bytes{130, 0, 0, 0, 10, 0, 0, 0, 0}));
}

TEST(RandAugmentOperation, MovesPixelsAndFillsWithGrey) {
  const Planes nine = planes(1, 3, kNine);
  EXPECT_EQ(after(Operation::translate_x, 1.0, nine), (Bytes{10, 20, 128, 40, 50, 128, 70, 80, 128}));
  EXPECT_EQ(after(Operation::translate_x, -2.0, nine), (Bytes{128, 128, 0, 128, 128, 30, 128, 128, 60}));
  EXPECT_EQ(after(Operation::translate_y, 1.0, nine), (Bytes{30, 40, 50, 60, 70, 80, 128, 128, 128}));
  EXPECT_EQ(after(Operation::shear_x, 1.0, nine), (Bytes{0, 10, 20, 40, 50, 128, 80, 128, 128}));
  EXPECT_EQ(after(Operation::shear_y, -1.0, nine), (Bytes{0, 128, 128, 30, 10, 128, 60, 40, 20}));
  EXPECT_EQ(after(Operation::rotate, 0.0, nine), kNine);
  EXPECT_EQ(after(Operation::rotate, 90.0, nine), (Bytes{60, 30, 0, 70, 40, 10, 80, 50, 20})) << "clockwise";
  EXPECT_EQ(after(Operation::rotate, -90.0, nine), (Bytes{20, 50, 80, 10, 40, 70, 0, 30, 60}));
  EXPECT_EQ(after(Operation::rotate, 180.0, nine), Bytes(kNine.rbegin(), kNine.rend()));
  Bytes colours = kNine;
  colours.insert(colours.end(), kNine.begin(), kNine.end());
  colours.insert(colours.end(), kNine.begin(), kNine.end());
  const Bytes moved = after(Operation::translate_y, -1.0, planes(3, 3, colours));
  EXPECT_EQ(Bytes(moved.begin() + 18, moved.end()), (Bytes{128, 128, 128, 0, 10, 20, 30, 40, 50})) << "every channel";
}

TEST(RandAugmentOperation, MagnitudeTenEndsAutoAugmentsRanges) {
  const auto value = [](Operation operation, double magnitude, bool opposite = false) {
    return value_of(operation, magnitude, opposite, 331);
  };
  EXPECT_DOUBLE_EQ(value(Operation::rotate, 10), 30.0);
  EXPECT_DOUBLE_EQ(value(Operation::rotate, 5, true), -15.0);
  EXPECT_DOUBLE_EQ(value(Operation::shear_x, 10), 0.3);
  EXPECT_DOUBLE_EQ(value(Operation::shear_y, 20, true), -0.6);
  EXPECT_DOUBLE_EQ(value(Operation::translate_x, 10), 150.0);
  EXPECT_DOUBLE_EQ(value(Operation::translate_y, 10, true), -150.0);
  EXPECT_DOUBLE_EQ(value(Operation::solarize, 0), 256.0);
  EXPECT_DOUBLE_EQ(value(Operation::solarize, 12), 0.0);
  EXPECT_DOUBLE_EQ(value(Operation::posterize, 10), 4.0);
  EXPECT_DOUBLE_EQ(value(Operation::posterize, 30), 1.0);
  for (const Operation operation :
       {Operation::color, Operation::contrast, Operation::brightness, Operation::sharpness}) {
    EXPECT_DOUBLE_EQ(value(operation, 10), 1.9);
    EXPECT_DOUBLE_EQ(value(operation, 10, true), 0.1);
    EXPECT_DOUBLE_EQ(value(operation, 30, true), 0.0);
    EXPECT_DOUBLE_EQ(value(operation, 0), 1.0);
  }
}

TEST(RandAugmentOperation, EveryOneIsDrawn) {
  std::set<Bytes> seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Planes changed = planes_of(gradient(16, 16), middle(gradient(16, 16), 1.0), 16), again = changed;
    Random random(seed), same(seed);
    rand_augment(changed, 1, 10.0, random);
    rand_augment(again, 1, 10.0, same);
    EXPECT_EQ(changed.pixels, again.pixels);
    seen.insert(changed.pixels);
  }
  // Eight operations have two directions; solarize and posterize have one. The other four do not change this image.
  EXPECT_EQ(seen.size(), 2U * 8U + 2U + 1U);
}

TEST(AugmentAtRandom, IsAFunctionOfTheSeed) {
  const Image image = gradient(40, 30);
  const Augmentation all{.mean = {0.5, 0.5, 0.5},
                         .deviation = {0.5, 0.5, 0.5},
                         .centre = 0.875,
                         .crop = 0.05,
                         .operations = 2,
                         .magnitude = 10.0,
                         .shift = 0,
                         .flip = true};
  const auto drawn = [&](const Augmentation& how, std::uint64_t seed) {
    std::vector<float> out(3 * 8 * 8);
    augment(image, how, 8, seed, out.data());
    return out;
  };
  std::set<std::vector<float>> seen;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(drawn(all, seed), drawn(all, seed));
    seen.insert(drawn(all, seed));
  }
  EXPECT_GT(seen.size(), 45U);
  EXPECT_EQ(drawn(all.without_changes(), 1), drawn(all.without_changes(), 2));
  const Planes plain = planes_of(image, middle(image, 0.875), 8);
  EXPECT_FLOAT_EQ(drawn(all.without_changes(), 0)[70], static_cast<float>(plain.pixels[70]) / 127.5F - 1.0F);
}

}  // namespace headroom::data::augmentation_test
