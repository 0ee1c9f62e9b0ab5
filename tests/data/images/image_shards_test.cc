#include <algorithm>
#include <set>

#include "data/text/archives.h"
#include "data/text/support.h"
#include "data/tokens/example_order.h"
#include "headroom/core/error.h"
#include "image_files.h"

namespace headroom::data {
namespace image_shards_test {

class ImageShardFiles : public FolderTest {
 protected:
  std::string complaint(const std::string& bytes, const std::string& name = "a.tar") const {
    return refusal_of([&] { open_images({write(name, bytes)}, reading_); });
  }
  std::shared_ptr<const ImageDataset> open(const std::string& bytes) const {
    return open_images({write("a.tar", bytes)}, reading_);
  }

  ImageReading reading_{.size = 4, .channels = 3, .n_classes = 10};
};

std::string sample(const std::string& name, int label, const Image& image = gradient(3, 2)) {
  return tar_member(name + ".ppm", ppm(image)) + tar_member(name + ".cls", std::to_string(label));
}

TEST_F(ImageShardFiles, ReadsImagesAndTheirLabels) {
  const std::string archive =
      tar_member("set/", "", '5') + tar_member("set/a.jpg", jpeg(gradient(16, 12))) + tar_member("set/a.cls", " 3\n") +
      tar_member("set/a.txt", "a caption") + tar_member("set/b.json", R"({"label": 7, "more": [1]})") +
      tar_member("set/b.seg.png", "another image") + tar_member("set/b.PNG", png(gradient(5, 4))) +
      tar_member("c/._c.jpg", "hidden") + tar_member("c/c.txt", "9") + tar_member("c/c.jpeg", jpeg(gradient(8, 8))) +
      tar_member("c/c.note", "") + tar_member("d.meta", "neither image nor label") + kTarEnd;
  const auto set = open(archive);
  ASSERT_EQ(set->size(), 3);
  EXPECT_EQ(set->label(0), 3);
  EXPECT_EQ(set->label(1), 7);
  EXPECT_EQ(set->label(2), 9);
  EXPECT_EQ(set->image(0).width, 16);
  EXPECT_EQ(set->image(1).pixels, gradient(5, 4).pixels);
  EXPECT_EQ(set->image(2).height, 8);
  EXPECT_EQ(open(archive)->identity(), set->identity());
  EXPECT_TRUE(set->identity().starts_with("3 pictures in 1 shards, "));
  EXPECT_NE(open(sample("a", 3) + kTarEnd)->identity(), open(sample("b", 3) + kTarEnd)->identity());
}

TEST_F(ImageShardFiles, LongNamesAreOneName) {
  const std::string name(150, 'n');
  const std::string archive =
      pax("path=" + name + ".ppm") + tar_member("short.ppm", ppm(gradient(3, 2))) + pax("mtime=1.5") +
      tar_member("x.unused", "") + pax("path=" + name + ".cls") + tar_member("short.cls", "4") +
      tar_member("././@LongLink", name + "2.ppm" + std::string(1, '\0'), 'L') +
      tar_member("short.ppm", ppm(gradient(2, 2))) +
      tar_member("././@LongLink", name + "2.cls" + std::string(1, '\0'), 'L') + tar_member("short.cls", "5") + kTarEnd;
  EXPECT_HAS(complaint(archive), "has no label") << "another sample's member came between";
  const std::size_t between = archive.find("x.unused");
  const auto set = open(archive.substr(0, between - kTarEnd.size()) + archive.substr(between + 512));
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->label(1), 5);
  EXPECT_EQ(set->image(1).width, 2);
}

TEST_F(ImageShardFiles, NamesOfClassesAndTheKeyOfJson) {
  reading_.classes = {"cat", "dog"};
  reading_.n_classes = 2;
  reading_.label_key = "species";
  const std::string image = ppm(gradient(2, 2));
  const auto set = open(tar_member("a.ppm", image) + tar_member("a.txt", "dog\n") + tar_member("b.ppm", image) +
                        tar_member("b.json", R"({"species": "cat"})") + kTarEnd);
  EXPECT_EQ(set->label(0), 1);
  EXPECT_EQ(set->label(1), 0);
  EXPECT_EQ(complaint(tar_member("a.ppm", image) + tar_member("a.txt", "cow") + kTarEnd),
            "a.tar: a.txt: the label must be one of the 2 of data.classes, got \"cow\"");
  EXPECT_EQ(complaint(tar_member("a.ppm", image) + tar_member("a.json", "{\"label\": 1}") + kTarEnd),
            "a.tar: a.json: must be an object with a number or a string as its \"species\" (data.label_column)");
  reading_.n_classes = 3;
  EXPECT_EQ(complaint(sample("a", 1) + kTarEnd), "data.classes: must name model.n_classes = 3 classes, got 2");
}

TEST_F(ImageShardFiles, RefusesOtherFiles) {
  const std::string good = sample("a", 1);
  EXPECT_EQ(complaint(good), "a.tar: is truncated: the archive ends at byte 2048 without an end mark");
  EXPECT_EQ(complaint(good.substr(0, 530)),
            "a.tar: is truncated: a.ppm has 29 bytes from byte 512 on, but the archive ends at byte 530");
  EXPECT_EQ(complaint(std::string(2048, 'z')),
            "a.tar: not a tar archive or damaged: bad checksum in the header at byte 0");
  EXPECT_EQ(complaint(""), "a.tar: is truncated: the archive ends at byte 0 without an end mark");
  EXPECT_EQ(complaint(kTarEnd), "a.tar: holds no images");
  EXPECT_EQ(complaint(tar_member("a.jpg", "", '2') + kTarEnd),
            "a.tar: a.jpg is a link or another member without content");
  EXPECT_EQ(complaint(tar_member("a.jpg", "x") + kTarEnd),
            "a.tar: sample a has no label: a member .cls, .json or .txt");
  EXPECT_EQ(complaint(tar_member("a.cls", "1") + kTarEnd),
            "a.tar: sample a has no image: a member .jpg, .jpeg, .png or .ppm");
  EXPECT_EQ(complaint(tar_member("a.jpg", "x") + good + kTarEnd), "a.tar: a.ppm: the sample has a second image");
  EXPECT_EQ(complaint(sample("a", 10) + kTarEnd),
            "a.tar: a.cls: the label (names need data.classes) must be a number from 0 to 9, got \"10\"");
  EXPECT_EQ(complaint(tar_member("x", "30 path=a\n", 'x') + good + kTarEnd),
            "a.tar: is a damaged tar archive: a pax header without line lengths");
  EXPECT_EQ(complaint(pax("size=9000000000") + good + kTarEnd),
            "a.tar: has a member of 8 GiB or more, which is not supported");
  EXPECT_EQ(complaint(gzip(good), "a.tar.gz"),
            "a.tar.gz: is compressed: images are read from any position of a shard, which must be a plain .tar");
  EXPECT_HAS(user_error_of([&] { open_images({at("none.tar")}, reading_); }), "none.tar: cannot be read: No such file");
  // A header that claims 8 GiB.
  std::string lying = tar_member("a.jpg", "");
  lying.replace(124, 11, "77777777777");
  EXPECT_HAS(complaint(with_tar_sum(lying.substr(0, 512)) + kTarEnd), "has 8589934591 bytes from byte 512 on");
}

TEST_F(ImageShardFiles, SkipsBadSamplesIfRequested) {
  const std::string archive = sample("a", 1) + tar_member("b.ppm", "x") + sample("c", 11) + sample("d", 2) + kTarEnd;
  EXPECT_HAS(complaint(archive), "sample b has no label");
  reading_.skip_bad = true;
  const auto set = open(archive);
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->label(1), 2);
}

TEST_F(ImageShardFiles, DottedNamesBelongToTheSample) {
  const std::string image = ppm(gradient(3, 2)), other = ppm(gradient(2, 2));
  const auto set = open(tar_member("a.v2.ppm", image) + tar_member("a.v2.cls", "3") + tar_member("b.mask.ppm", other) +
                        tar_member("b.ppm", image) + tar_member("b.cls", "4") + tar_member("b.old.cls", "5") + kTarEnd);
  ASSERT_EQ(set->size(), 2);
  EXPECT_EQ(set->label(0), 3);
  EXPECT_EQ(set->label(1), 4);
  EXPECT_EQ(set->image(0).width, 3);
  EXPECT_EQ(set->image(1).width, 3) << "the member without a further extension";
  EXPECT_EQ(complaint(tar_member("a.x.ppm", image) + tar_member("a.y.ppm", image) + kTarEnd),
            "a.tar: a.y.ppm: the sample has a second image");
}

TEST_F(ImageShardFiles, DamageIsFoundWhenAnImageIsRead) {
  const auto set = open(tar_member("a.jpg", jpeg(gradient(9, 9)).substr(0, 300)) + tar_member("a.cls", "0") + kTarEnd);
  EXPECT_HAS(user_error_of([&] { set->image(0); }), "a.tar: the image at byte 512: is a damaged JPEG file");
  std::filesystem::resize_file(at("a.tar"), 600);
  EXPECT_HAS(user_error_of([&] { set->image(0); }), "a.tar: cannot be read at byte 600: the file ends there");
}

TEST_F(ImageShardFiles, AnyNumberOfThreadsOpensTheSame) {
  std::vector<std::string> patterns;
  for (int shard = 0; shard < 6; ++shard) {
    std::string archive;
    for (int i = 0; i <= shard; ++i) {
      archive += sample(fmt::format("{}_{}", shard, i), (shard + i) % 10);
    }
    write(fmt::format("s-{}.tar", shard), archive + kTarEnd);
  }
  const auto one = open_images({at("s-*.tar")}, reading_);
  reading_.threads = 4;
  const auto four = open_images({at("s-*.tar")}, reading_);
  EXPECT_EQ(one->identity(), four->identity());
  EXPECT_EQ(one->file_sizes(), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6}));
  for (std::int64_t i = 0; i < one->size(); ++i) {
    EXPECT_EQ(one->label(i), four->label(i));
  }
  write("s-2.tar", "short");
  write("s-4.tar", "shorter");
  for (int i = 0; i < 5; ++i) {
    EXPECT_HAS(user_error_of([&] { open_images({at("s-*.tar")}, reading_); }), "s-2.tar: is truncated");
  }
}

}  // namespace image_shards_test
}  // namespace headroom::data
