#include "data/images/augmentation.h"
#include "data/text/support.h"
#include "fuzz.h"
#include "image_files.h"

namespace headroom::data::image_fuzz_test {

constexpr std::int64_t kCampaigns = 4;  // share the time of each function

class ImageFuzz : public FolderTest {
 protected:
  void SetUp() override { set_log_level(LogLevel::quiet); }
  void decode(const std::string& input) const {
    const Image image = read_image(write("image", input), 3);
    EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(image.width * image.height * 3));
    EXPECT_EQ(planes_of(image, middle(image, 1.0), 4).pixels.size(), 3U * 4U * 4U);
  }
  // Sums all pixels, so that the sanitizers check each of them.
  static void use(const ImageDataset& set) {
    std::uint64_t sum = 0, pixels = 0;
    for (std::int64_t i = 0; i < set.size(); ++i) {
      const Image image = set.image(i);
      for (const std::uint8_t pixel : image.pixels) {
        sum += pixel;
      }
      pixels += image.pixels.size();
      EXPECT_GE(set.label(i), 0);
      EXPECT_LT(set.label(i), 10);
    }
    EXPECT_LE(sum, 255U * pixels);
  }
};

// Corrects the checksum of every chunk.
std::string with_checksums(std::string input) {
  for (std::size_t at = 8; at + 12 <= input.size();) {
    std::uint32_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length = length << 8 | static_cast<unsigned char>(input[at + i]);
    }
    if (length > input.size() - at - 12) {
      break;
    }
    const auto sum = static_cast<std::uint32_t>(
        crc32(0, reinterpret_cast<const Bytef*>(input.data()) + at + 4, static_cast<uInt>(length) + 4));
    input.replace(at + 8 + length, 4, big_endian(sum));
    at += 12 + length;
  }
  return input;
}

TEST_F(ImageFuzz, Png) {
  const fuzz::Material material{
      .good = {png(gradient(7, 5)), png(gradient(33, 20)),
               png({.width = 2, .height = 1, .channels = 1, .pixels = {10, 200}})},
      .dictionary = {"IHDR", "IDAT", "PLTE", "tRNS", "IEND", "iCCP", big_endian(1), big_endian(0x7fffffff),
                     std::string("\x10\x06", 2), std::string("\x01\x00", 2), "\x89PNG\r\n\x1a\n"}};
  fuzz::against(
      material, 500, [&](const std::string& input) { decode(input); }, kCampaigns);
  fuzz::against(
      material, 2000, [&](const std::string& input) { decode(with_checksums(input)); }, kCampaigns);
}

TEST_F(ImageFuzz, Jpeg) {
  const fuzz::Material material{.good = {jpeg(gradient(16, 12)), jpeg(gradient(40, 40))},
                                .dictionary = {"\xff\xd8", "\xff\xc0", "\xff\xc2", "\xff\xc4", "\xff\xda", "\xff\xd9",
                                               "\xff\xdb", "\xff\xdd", std::string("\xff\x00", 2)}};
  fuzz::against(
      material, 2000, [&](const std::string& input) { decode(input); }, kCampaigns);
}

TEST_F(ImageFuzz, Pnm) {
  const fuzz::Material material{
      .good = {ppm(gradient(7, 5)), ppm({.width = 2, .height = 1, .channels = 1, .pixels = {10, 200}}),
               "P5 # a\n2 1\n#\n15\n\x0a\x0f"},
      .dictionary = {"P5", "P6", "#", "\n", " ", "255", "65535", "0", "-1", "4294967295"}};
  fuzz::against(
      material, 2000, [&](const std::string& input) { EXPECT_EQ(decode_image("x", input, 3).pixels.size() % 3, 0U); },
      kCampaigns);
}

TEST_F(ImageFuzz, Idx) {
  write("train-labels-idx1-ubyte", idx_labels({'\1', '\0', '\7'}));
  const fuzz::Material images{.good = {idx_images(3, 4, 4), gzip(idx_images(3, 4, 4))},
                              .dictionary = {big_endian(0x0803), big_endian(0x0801), big_endian(0xffffffff),
                                             big_endian(0x80000000), big_endian(4)}};
  const ImageReading reading{.size = 4, .channels = 1, .n_classes = 10};
  fuzz::against(
      images, 1500,
      [&](const std::string& input) { use(*open_images({write("train-images-idx3-ubyte", input)}, reading)); },
      kCampaigns);
  write("train-images-idx3-ubyte", idx_images(3, 4, 4));
  const fuzz::Material labels{.good = {idx_labels({'\1', '\0', '\7'})}, .dictionary = images.dictionary};
  fuzz::against(
      labels, 1500,
      [&](const std::string& input) {
        write("train-labels-idx1-ubyte", input);
        use(*open_images({at("train-images-idx3-ubyte")}, reading));
      },
      kCampaigns);
}

TEST_F(ImageFuzz, Cifar) {
  const std::string record = "\3" + std::string(3072, 'p');
  const fuzz::Material material{.good = {record, record + record, gzip(record)},
                                .dictionary = {record, std::string(1024, '\0'), "\x64", "\xff"}};
  const ImageReading reading{.size = 32, .channels = 3, .n_classes = 10};
  fuzz::against(
      material, 1500, [&](const std::string& input) { use(*open_images({write("data_batch_1.bin", input)}, reading)); },
      kCampaigns);
}

}  // namespace headroom::data::image_fuzz_test
