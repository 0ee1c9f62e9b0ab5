#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "data/pictures/picture_file.h"
#include "headroom/core/error.h"
#include "headroom/data/images.h"
#include "pictures.h"
#include "support.h"

namespace headroom::data {
namespace image_folder_test {

class ImageFolder : public FolderTest {
 protected:
  std::string complaint(const std::string& bytes) const {
    try {
      read_picture(write("picture", bytes), 3);
    } catch (const MisuseError& error) {
      const std::string why = error.what();
      return why.starts_with(at("picture")) ? why.substr(at("picture").size()) : why;
    }
    return "no complaint";
  }
};

TEST_F(ImageFolder, DecodesPng) {
  const DecodedPicture original = gradient(7, 5), read = read_picture(write("a.png", png(original)), 3);
  EXPECT_EQ(read.width, 7);
  EXPECT_EQ(read.height, 5);
  EXPECT_EQ(read.pixels, original.pixels);
  const DecodedPicture grey = {.width = 2, .height = 1, .channels = 1, .pixels = {10, 200}};
  EXPECT_EQ(read_picture(write("b", png(grey)), 1).pixels, grey.pixels);
  EXPECT_EQ(read_picture(at("b"), 3).pixels, (std::vector<std::uint8_t>{10, 10, 10, 200, 200, 200}));
}

TEST_F(ImageFolder, DecodesJpeg) {
  const DecodedPicture original = gradient(64, 48), read = read_picture(write("a.jpg", jpeg(original)), 3);
  ASSERT_EQ(read.pixels.size(), original.pixels.size());
  int worst = 0;
  for (std::size_t i = 0; i < read.pixels.size(); ++i) {
    worst = std::max(worst, std::abs(read.pixels[i] - original.pixels[i]));
  }
  EXPECT_LE(worst, 12) << "the colours have half the resolution";
  EXPECT_EQ(read_picture(at("a.jpg"), 1).pixels.size(), 64U * 48U);
}

TEST_F(ImageFolder, RefusesDamage) {
  EXPECT_EQ(complaint("GIF89a"), ": is neither a PNG nor a JPEG file");
  const std::string good = png(gradient(40, 40)), photo = jpeg(gradient(40, 40));
  for (std::size_t length = 4; length + 12 < good.size(); length += 7) {  // the last 12 bytes only mark the end
    EXPECT_NE(complaint(good.substr(0, length)).find("damaged PNG"), std::string::npos) << length;
  }
  for (std::size_t length = 4; length + 2 < photo.size(); length += 11) {
    EXPECT_NE(complaint(photo.substr(0, length)).find("damaged JPEG"), std::string::npos) << length;
  }
  // Four thousand million pixels that are not there.
  std::string huge = good;
  huge.replace(16, 8, "\x00\x00\xff\xff\x00\x00\xff\xff", 8);
  EXPECT_NE(complaint(huge), "no complaint");
  Random random(3);
  for (int i = 0; i < 300; ++i) {  // whatever a byte says: an answer or a complaint
    std::string changed = i % 2 == 0 ? good : photo;
    changed[random.below(changed.size())] = static_cast<char>(random.below(256));
    complaint(changed);
  }
}

TEST(SquarePlanes, KeepsWhatNeedsNoChange) {
  const DecodedPicture picture = gradient(5, 5);
  const std::vector<std::uint8_t> planes = square_planes(picture, 5);
  for (std::size_t i = 0; i < 25; ++i) {
    EXPECT_EQ(planes[i], picture.pixels[3 * i]);
    EXPECT_EQ(planes[25 + i], picture.pixels[3 * i + 1]);
    EXPECT_EQ(planes[50 + i], 77);
  }
}

TEST(SquarePlanes, TakesTheMiddleAndAverages) {
  // Left and right of the middle square all is white; in it, a checkerboard of single pixels.
  DecodedPicture picture{.width = 24, .height = 8, .channels = 1, .pixels = {}};
  for (int y = 0; y < 8; ++y) {
    for (int x = 0; x < 24; ++x) {
      picture.pixels.push_back(x < 8 || x >= 16 || (x + y) % 2 == 0 ? 255 : 0);
    }
  }
  for (const std::uint8_t pixel : square_planes(picture, 2)) {
    EXPECT_NEAR(pixel, 127.5, 1.0);
  }
  // A smooth one keeps its slope, larger as well.
  const std::vector<std::uint8_t> larger = square_planes(gradient(4, 4), 8);
  EXPECT_TRUE(std::is_sorted(larger.begin(), larger.begin() + 8));
  EXPECT_EQ(larger[0], 0);
  EXPECT_EQ(larger[7], 255);
}

TEST_F(ImageFolder, ClassesAreFoldersInTheOrderOfTheirNames) {
  write("set/dog/1.png", png(gradient(6, 4)));
  write("set/cat/b.jpg", jpeg(gradient(32, 32)));
  write("set/cat/a.png", png(gradient(4, 4)));
  write("set/.hidden/x.png", "x");
  ImageReading reading{.size = 4, .channels = 3, .n_classes = 2};
  const ImageSet set = read_images({at("set")}, reading);
  EXPECT_EQ(set.labels(), (std::vector<std::int32_t>{0, 0, 1}));
  EXPECT_EQ(set.at(0)[3], 255) << "red, to the right";
  reading.classes = {"dog", "cat"};
  EXPECT_EQ(read_images({at("set")}, reading).labels(), (std::vector<std::int32_t>{1, 1, 0}));
  write("set/cat/notes.txt", "no picture");
  EXPECT_THROW(read_images({at("set")}, reading), MisuseError);
  reading.skip_bad = true;
  EXPECT_EQ(read_images({at("set")}, reading).size(), 3);
  reading.classes = {"dog", "bird"};
  EXPECT_THROW(read_images({at("set")}, reading), MisuseError);
  reading.classes = {};
  reading.n_classes = 3;
  EXPECT_THROW(read_images({at("set")}, reading), MisuseError);
}

}  // namespace image_folder_test
}  // namespace headroom::data
