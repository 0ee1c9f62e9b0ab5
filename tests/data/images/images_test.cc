#include "data/images/image_dataset.h"

#include <cmath>

#include "data/images/augmentation.h"
#include "data/text/support.h"
#include "image_files.h"

namespace headroom::data::images_test {

const ImageReading kSmall = {.size = 4, .channels = 1, .n_classes = 10};

class Images : public FolderTest {
 protected:
  std::string complaint(const std::vector<std::string>& files, const ImageReading& reading = kSmall) const {
    return refusal_of([&] { open_images(files, reading); });
  }
};

TEST_F(Images, ReadsIdxWithTheLabelsNextToIt) {
  const std::string images = write("train-images-idx3-ubyte", idx_images(3, 4, 4));
  write("train-labels-idx1-ubyte", idx_labels({'\1', '\0', '\7'}));
  const InMemoryImages set = read_images({images}, kSmall);
  ASSERT_EQ(set.size(), 3);
  EXPECT_EQ(set.labels(), (std::vector<std::int32_t>{1, 0, 7}));
  EXPECT_EQ(set.at(1)[2], (16 + 2) * 7 % 251);
  const std::string packed = write("other.gz", gzip(idx_images(3, 4, 4))),
                    labels = write("labels.gz", gzip(idx_labels({'\1', '\0', '\7'})));
  EXPECT_EQ(read_images({packed, labels}, kSmall).identity(), set.identity());
  EXPECT_EQ(read_images({packed, labels, images}, kSmall).size(), 6);
}

TEST_F(Images, ReadsCifar) {
  const ImageReading colour = {.size = 32, .channels = 3, .n_classes = 10};
  std::string records;
  for (const char label : {'\3', '\7'}) {
    records += label + std::string(3072, static_cast<char>(label * 10));
  }
  const std::string file = write("data_batch_1.bin", records);
  const InMemoryImages set = read_images({file}, colour);
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(set.labels(), (std::vector<std::int32_t>{3, 7}));
  EXPECT_EQ(set.at(1)[3071], 70);
  // CIFAR-100 has a coarse label, then a fine label.
  const std::string hundred = write("train.bin", std::string("\x05\x63", 2) + std::string(3072, '\1'));
  EXPECT_EQ(read_images({hundred}, {.size = 32, .channels = 3, .n_classes = 100}).labels().front(), 99);
  EXPECT_EQ(read_images({hundred}, {.size = 32, .channels = 3, .n_classes = 20}).labels().front(), 5);
  EXPECT_EQ(complaint({file}, {.size = 32, .channels = 3, .n_classes = 5}),
            "data_batch_1.bin: label 7 of image 2 must be below model.n_classes = 5");
  EXPECT_EQ(complaint({write("cut.bin", records.substr(0, 3100))}, colour),
            "cut.bin: ends at byte 3100 in the middle of image 2, which has 3073 bytes");
}

TEST_F(Images, RefusesInconsistentFiles) {
  const std::string good = write("good", idx_images(2, 4, 4)), labels = write("labels", idx_labels("\1\2"));
  EXPECT_EQ(complaint({good}),
            "good: has no labels: name their idx file after it, or call them ...images-idx3... and ...labels-idx1...");
  EXPECT_EQ(complaint({good + ".gone"}), "good.gone: no such file");
  EXPECT_EQ(complaint({good, write("three", idx_labels("\1\2\3"))}), "three: holds 3 labels, but good holds 2 images");
  EXPECT_EQ(complaint({good, write("large", idx_labels("\1\x0b"))}),
            "large: label 11 of image 2 must be below model.n_classes = 10");
  EXPECT_EQ(complaint({write("wide", idx_images(2, 4, 5)), labels}),
            "wide: its images have 1 channels, 4 x 5, but model.image_channels = 1 and model.image_size = 4");
  EXPECT_EQ(complaint({write("cut", idx_images(2, 4, 4).substr(0, 40)), labels}),
            "cut: ends at byte 40 in the middle of image 2 of 2");
  EXPECT_EQ(complaint({write("end", idx_images(2, 4, 4).substr(0, 32)), labels}),
            "end: ends at byte 32, where image 2 of 2 must follow");
  EXPECT_EQ(complaint({write("long", idx_images(2, 4, 4) + "x"), labels}),
            "long: holds more bytes after its last image, from byte 48 on");
  EXPECT_EQ(complaint({write("text", "hello, this is no image"), labels}),
            "text: must be an idx file of images, beginning with 0x00000803, got 0x68656c6c");
  // A header that claims four billion images must not cause an allocation.
  const std::string lying = big_endian(0x0803) + big_endian(0xffffffff) + big_endian(4) + big_endian(4);
  EXPECT_EQ(complaint({write("lying", lying), write("lying_labels", big_endian(0x0801) + big_endian(0xffffffff))}),
            "lying: ends at byte 16, where image 1 of 4294967295 must follow");
  EXPECT_EQ(complaint({write("huge", big_endian(0x0803) + std::string(12, '\xff')), labels}),
            "huge: its images have 1 channels, 4294967295 x 4294967295, but model.image_channels = 1 and "
            "model.image_size = 4");
}

InMemoryImages one_image() {
  InMemoryImages set(3, 1);
  set.add(std::vector<std::uint8_t>{0, 51, 102, 153, 204, 255, 10, 20, 30}, 0);
  return set;
}

TEST(Augment, Normalises) {
  const InMemoryImages set = one_image();
  config::DataOptions options;
  options.pixel_mean = {0.2};
  options.pixel_std = {0.4};
  std::vector<float> out(9);
  augment(set.image(0), augmentation_options(options, 1), 3, 0, out.data());
  EXPECT_FLOAT_EQ(out[0], -0.5F);
  EXPECT_FLOAT_EQ(out[5], 2.0F);
  options.pixel_mean = {0.1, 0.2};
  EXPECT_THROW(augmentation_options(options, 3), UserError);
  EXPECT_EQ(augmentation_options({}, 3).mean, (std::vector<double>{0.5, 0.5, 0.5}));
}

TEST(Augment, MovesAndMirrorsDependingOnTheSeed) {
  const InMemoryImages set = one_image();
  Augmentation image{.mean = {0.0}, .deviation = {1.0 / 255.0}, .shift = 1};
  std::set<std::vector<int>> seen;
  const auto drawn = [&](std::uint64_t seed) {
    std::vector<float> out(9);
    augment(set.image(0), image, 3, seed, out.data());
    std::vector<int> pixels(9);
    std::transform(out.begin(), out.end(), pixels.begin(), [](float x) { return static_cast<int>(std::lround(x)); });
    return pixels;
  };
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    EXPECT_EQ(drawn(seed), drawn(seed));
    seen.insert(drawn(seed));
  }
  EXPECT_EQ(seen.size(), 9U) << "three places down, three to the right";
  EXPECT_TRUE(seen.contains({0, 51, 102, 153, 204, 255, 10, 20, 30}));
  EXPECT_TRUE(seen.contains({0, 0, 0, 0, 0, 51, 0, 153, 204})) << "one down, one to the right";
  image.shift = 0;
  image.flip = true;
  seen.clear();
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    seen.insert(drawn(seed));
  }
  EXPECT_EQ(seen, (std::set<std::vector<int>>{{0, 51, 102, 153, 204, 255, 10, 20, 30},
                                              {102, 51, 0, 255, 204, 153, 30, 20, 10}}));
}

}  // namespace headroom::data::images_test
