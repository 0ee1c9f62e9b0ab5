#include <sys/stat.h>

#include <cmath>

#include "data/text/support.h"
#include "image_files.h"

namespace headroom::data::image_folder_test {

std::vector<std::int32_t> labels_of(const ImageDataset& set) {
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < set.size(); ++i) {
    labels.push_back(set.label(i));
  }
  return labels;
}

class ImageFolderFiles : public FolderTest {
 protected:
  std::string complaint(const std::string& bytes) const {
    return refusal_of([&] { decode_image("", bytes, 3); });
  }
};

TEST_F(ImageFolderFiles, DecodesPng) {
  const Image original = gradient(7, 5), read = read_image(write("a.png", png(original)), 3);
  EXPECT_EQ(read.width, 7);
  EXPECT_EQ(read.height, 5);
  EXPECT_EQ(read.pixels, original.pixels);
  const Image grey = {.width = 2, .height = 1, .channels = 1, .pixels = {10, 200}};
  EXPECT_EQ(read_image(write("b", png(grey)), 1).pixels, grey.pixels);
  EXPECT_EQ(read_image(at("b"), 3).pixels, (std::vector<std::uint8_t>{10, 10, 10, 200, 200, 200}));
}

TEST_F(ImageFolderFiles, DecodesJpeg) {
  const Image original = gradient(64, 48), read = read_image(write("a.jpg", jpeg(original)), 3);
  ASSERT_EQ(read.pixels.size(), original.pixels.size());
  int worst = 0;
  for (std::size_t i = 0; i < read.pixels.size(); ++i) {
    worst = std::max(worst, std::abs(read.pixels[i] - original.pixels[i]));
  }
  EXPECT_LE(worst, 12) << "the colours have half the resolution";
  EXPECT_EQ(read_image(at("a.jpg"), 1).pixels.size(), 64U * 48U);
}

TEST_F(ImageFolderFiles, DecodesPnm) {
  const Image original = gradient(5, 3);
  EXPECT_EQ(read_image(write("a.ppm", ppm(original)), 3).pixels, original.pixels);
  EXPECT_EQ(decode_image("x", "P5 # two\n2 1\n#\n255\n\x0a\xc8", 3).pixels,
            (std::vector<std::uint8_t>{10, 10, 10, 200, 200, 200}));
  EXPECT_EQ(decode_image("x", "P6 1 1 15 \x0f\x0f\x0f", 1).pixels, (std::vector<std::uint8_t>{255}));
  EXPECT_EQ(decode_image("x", "P6 1 1 255 \xff" + std::string(2, '\0'), 1).pixels, (std::vector<std::uint8_t>{76}));
  EXPECT_EQ(complaint("P5 2 2 255\nabc"), ": is a damaged PNM file: 4 bytes of pixels must follow its header, got 3");
  EXPECT_EQ(complaint("P5 2 2 65535\nabcdefgh"), ": the maximum value of a PNM file must be from 1 to 255, got 65535");
  EXPECT_EQ(complaint("P5 1 1 15\nz"), ": is a damaged PNM file: the value 122 exceeds its maximum of 15");
  EXPECT_HAS(complaint("P6 99999 99999 255\nabc"), "1 to 67108864 pixels");
  EXPECT_HAS(complaint("P6 2 -2 255\nabc"), "its header has no width, height and highest value");
}

TEST_F(ImageFolderFiles, PngSamplesAreSrgbAndGreyIsTheirLuma) {
  using Pixels = std::vector<std::uint8_t>;
  const std::string deep = png_row(2, 16, 2, std::string("\x0a\x0a\x80\x80\xff\xff\0\0\x14\x14\x28\x28", 12));
  EXPECT_EQ(decode_image("x", deep, 3).pixels, (Pixels{10, 128, 255, 0, 20, 40}));
  const Image colours = {.width = 2, .height = 1, .channels = 3, .pixels = {10, 128, 255, 0, 20, 40}};
  EXPECT_EQ(decode_image("x", ppm(colours), 1).pixels, (Pixels{107, 16}));
  EXPECT_EQ(decode_image("x", png(colours), 1).pixels, (Pixels{107, 16}));
  EXPECT_EQ(decode_image("x", deep, 1).pixels, (Pixels{107, 16}));
  const std::string clear = png_row(2, 8, 6, std::string("\xff\x80\x40\0\xff\x80\x40\xff", 8));
  EXPECT_EQ(decode_image("x", clear, 3).pixels, (Pixels{0, 0, 0, 255, 128, 64}));
}

TEST_F(ImageFolderFiles, RotatesImagesByTheirExifOrientation) {
  // For orientations 1 to 8, the order in which pixels 0 to 5 of a 3 x 2 image appear.
  const std::vector<std::vector<std::uint8_t>> seen = {{0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                                       {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                                       {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  Image blocks{.width = 3 * 16, .height = 2 * 16, .channels = 3, .pixels = {}};  // 16 x 16 pixels of each shade
  for (std::int64_t i = 0; i < blocks.width * blocks.height; ++i) {
    const std::int64_t block = i / blocks.width / 16 * 3 + i % blocks.width / 16;
    blocks.pixels.insert(blocks.pixels.end(), 3, static_cast<std::uint8_t>(40 * block));
  }
  const std::string plain = jpeg(blocks);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    for (const bool little_endian : {false, true}) {
      const std::string data = std::string("Exif\0\0", 6) + exif(static_cast<char>(i + 1), little_endian),
                        size = {'\0', static_cast<char>(data.size() + 2)};
      const Image image = decode_image("x", plain.substr(0, 2) + "\xff\xe1" + size + data + plain.substr(2), 1);
      ASSERT_EQ(image.width, i < 4 ? 48 : 32) << i + 1;
      for (std::int64_t block = 0; block < 6; ++block) {
        const std::int64_t wide = image.width / 16, x = block % wide * 16 + 8, y = block / wide * 16 + 8;
        EXPECT_NEAR(image.pixels[static_cast<std::size_t>(y * image.width + x)],
                    40 * seen[i][static_cast<std::size_t>(block)], 3)
            << i + 1 << ", block " << block;
      }
    }
  }
  const Image turned = decode_image("x", png_row(2, 8, 2, "abcdef", png_chunk("eXIf", exif(6, true))), 3);
  EXPECT_EQ(turned.height, 2);
  EXPECT_EQ(decode_image("x", png_row(2, 8, 2, "abcdef", png_chunk("eXIf", exif(3, true))), 3).pixels,
            (std::vector<std::uint8_t>{'d', 'e', 'f', 'a', 'b', 'c'}));
}

TEST_F(ImageFolderFiles, PaddingAroundTheEndOfJpegIsHarmless) {
  const std::string good = jpeg(gradient(24, 24));
  const std::string body = good.substr(0, good.size() - 2), end = good.substr(good.size() - 2);
  for (const std::string& padded : {good + "appended", good + good, body + std::string(9, '\0') + end}) {
    EXPECT_EQ(decode_image("x", padded, 3).pixels, decode_image("x", good, 3).pixels);
  }
}

TEST_F(ImageFolderFiles, RefusesDamage) {
  EXPECT_EQ(complaint("GIF89a"), ": is neither a PNG, a JPEG nor a PNM file");
  const std::string good = png(gradient(40, 40)), photo = jpeg(gradient(40, 40));
  for (std::size_t length = 4; length + 12 < good.size(); length += 7) {  // the last 12 bytes are only an end marker
    EXPECT_NE(complaint(good.substr(0, length)).find("damaged PNG"), std::string::npos) << length;
  }
  for (std::size_t length = 4; length + 2 < photo.size(); length += 11) {
    EXPECT_NE(complaint(photo.substr(0, length)).find("damaged JPEG"), std::string::npos) << length;
  }
  // The header claims four billion pixels.
  std::string huge = good;
  huge.replace(16, 8, "\x00\x00\xff\xff\x00\x00\xff\xff", 8);
  EXPECT_HAS(complaint(huge), "PNG");
}

TEST_F(ImageFolderFiles, ClassesAreFoldersInTheOrderOfTheirNames) {
  write("set/dog/1.png", png(gradient(6, 4)));
  write("set/cat/b.jpg", jpeg(gradient(32, 32)));
  write("set/cat/a.png", png(gradient(4, 4)));
  write("set/.hidden/x.png", "x");
  ImageReading reading{.size = 4, .channels = 3, .n_classes = 2};
  const auto set = open_images({at("set")}, reading);
  EXPECT_EQ(labels_of(*set), (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(set->image(0).pixels, gradient(4, 4).pixels);
  EXPECT_EQ(set->image(1).width, 32);
  EXPECT_EQ(set->image(2).height, 4) << "each has its own size";
  reading.classes = {"dog", "cat"};
  EXPECT_EQ(labels_of(*open_images({at("set")}, reading)), (std::vector<std::int32_t>{1, 1, 0}));
  // Folders are concatenated.
  reading.classes = {};
  const auto joined = open_images({at("set"), at("set")}, reading);
  EXPECT_EQ(labels_of(*joined), (std::vector<std::int32_t>{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(joined->image(5).pixels, set->image(2).pixels);
  // A corrupt image is detected when it is read.
  write("set/cat/notes.png", "no image");
  EXPECT_NE(open_images({at("set")}, reading)->identity(), set->identity());
  EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading)->image(2); }),
             "set/cat/notes.png: is neither a PNG, a JPEG nor a PNM file");
  reading.classes = {"dog", "bird"};
  EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading); }),
             "set/cat: its name must be one of the 2 of data.classes");
  reading.classes = {};
  reading.n_classes = 3;
  EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading); }),
             "a folder for each class names 2 classes, but model.n_classes = 3");
  reading.channels = 4;
  EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading); }), "model.image_channels = 1 or 3, got 4");
  EXPECT_HAS(user_error_of([&] { open_images({}, reading); }), "holds no images");
}

TEST_F(ImageFolderFiles, OtherExtensionsAreRefusedAtOnce) {
  write("set/cat/A.JPEG", jpeg(gradient(8, 8)));
  write("set/dog/a.b.pgm", "P5 1 1 255 x");
  write("set/dog/.directory", "hidden");
  ImageReading reading{.size = 4, .channels = 3, .n_classes = 2};
  EXPECT_EQ(open_images({at("set")}, reading)->size(), 2);
  for (const char* stray : {"set/dog/notes.txt", "set/dog/a.png.bak", "set/dog/Thumbs.db"}) {
    write(stray, ppm(gradient(2, 2)));
    EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading); }),
               std::string(stray) + ": not an image file: its name must end in .jpg, .jpeg, .png, .ppm");
    reading.skip_bad = true;
    EXPECT_EQ(open_images({at("set")}, reading)->size(), 3) << "it may be one after all";
    reading.skip_bad = false;
    std::filesystem::remove(at(stray));
  }
}

TEST_F(ImageFolderFiles, SubfoldersAreReadAndSpecialFilesNamed) {
  for (const char* name : {"set/cat/1.ppm", "set/cat/old/2.ppm", "set/cat/old/older/3.ppm", "set/dog/1.ppm"}) {
    write(name, ppm(gradient(2, 2)));
  }
  write("set/cat/.old/4.ppm", "hidden");
  write("set/README.md", "beside the classes");
  std::filesystem::create_symlink("1.ppm", at("set/dog/2.ppm"));
  ImageReading reading{.size = 4, .channels = 3, .n_classes = 2};
  const auto set = open_images({at("set")}, reading);
  EXPECT_EQ(labels_of(*set), (std::vector<std::int32_t>{0, 0, 0, 1, 1}));
  EXPECT_EQ(set->image(2).pixels, gradient(2, 2).pixels);
  EXPECT_EQ(set->image(4).pixels, gradient(2, 2).pixels);
  std::filesystem::create_symlink("../cat", at("set/dog/more"));
  std::filesystem::create_symlink("nothing", at("set/dog/lost.ppm"));
  ASSERT_EQ(::mkfifo(at("set/dog/pipe.ppm").c_str(), 0600), 0);
  for (const auto& [name, kind] : {std::pair{"lost.ppm", "broken link"}, std::pair{"more", "link to a folder"},
                                   std::pair{"pipe.ppm", "named pipe"}}) {
    EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading); }), fmt::format("set/dog/{}", name));
    EXPECT_HAS(user_error_of([&] { open_images({at("set")}, reading); }), kind);
    reading.skip_bad = true;
    EXPECT_EQ(open_images({at("set")}, reading)->size(), 5);
    reading.skip_bad = false;
    std::filesystem::remove(at(fmt::format("set/dog/{}", name)));
  }
}

}  // namespace headroom::data::image_folder_test
