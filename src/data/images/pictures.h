// Labelled pictures, each asked for by its number: held in memory, or read from a disk and decoded anew each time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace headroom::data {

// Rows of pixels, each `channels` bytes next to each other.
struct DecodedPicture {
  std::int64_t width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

struct ImageReading {
  std::int64_t size = 0, channels = 1;  // what the pictures must have; those of folders and shards may have any size
  std::int64_t n_classes = 0;
  // Names of the classes in their order: of folders, or the labels of shards; empty: folders sorted by name, and labels
  // that are numbers.
  std::vector<std::string> classes;
  std::string label_key = "label";  // shards: the key of the label in a sample's JSON
  // Samples of shards without picture or label are counted, and a warning says so; files of folders may have any name.
  bool skip_bad = false;
  int threads = 1;  // that read the headers of shards
};

class Pictures {
 public:
  virtual ~Pictures() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int32_t label(std::int64_t i) const = 0;
  // Any number of threads may ask at once. Throws UserError naming the file where it cannot be read or decoded.
  virtual DecodedPicture picture(std::int64_t i) const = 0;
  // How many pictures in a row lie next to each other on a disk, file by file; empty: it does not matter.
  virtual std::vector<std::int64_t> runs() const { return {}; }
  // "60000 pictures, 9c41...": of the pictures themselves in memory, of names, sizes and headers elsewhere.
  virtual std::string identity() const = 0;
};

// What `patterns` name, folder by folder, shard by shard, file by file:
//   folder   holds a folder for each class, and these PNG, JPEG and PNM files; hidden ones are left out, and others
//            stop here by their names, unless bad ones are to be left out later.
//   .tar     shards in the layout of WebDataset: members that follow each other under one name up to the first dot
//            are a sample: a picture (.jpg, .jpeg, .png, .ppm, .pgm, .pnm) and its label: .cls, else .json, else .txt.
//            A label is a number from 0 or, with reading.classes, one of these names. Other members of a sample are
//            left out.
//   others   idx and CIFAR files (images.h), which are held in memory.
// Held are 16 bytes a picture in shards, and its name and 8 bytes in folders. Throws UserError naming the file and
// what was found and expected: a damaged archive, links in it, members that are not there or larger than 64 MiB,
// samples without picture or label, labels out of range, no pictures at all.
std::shared_ptr<const Pictures> open_pictures(const std::vector<std::string>& patterns, const ImageReading& reading);

}  // namespace headroom::data
