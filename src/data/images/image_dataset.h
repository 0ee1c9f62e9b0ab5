// Labelled images by index: in memory, or read from disk and decoded on each access.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace headroom::data {

// Pixels in row-major order with interleaved channels, one byte per value.
struct Image {
  std::int64_t width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> pixels;
};

struct ImageReading {
  std::int64_t size = 0, channels = 1;  // expected size and channels; images in folders and shards may have any size
  std::int64_t n_classes = 0;
  // Class names in order: subfolder names, or the labels in shards. Empty: subfolders sorted by name, and numeric
  // labels.
  std::vector<std::string> classes;
  std::string label_key = "label";  // shards: the key of the label in a sample's JSON
  // Shards: skip samples without image or label and log their number as a warning. Folders: accept files of any name.
  bool skip_bad = false;
  int threads = 1;  // threads that read the headers of shards
};

class ImageDataset {
 public:
  virtual ~ImageDataset() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int32_t label(std::int64_t i) const = 0;
  // Thread-safe. Throws UserError naming the file if it cannot be read or decoded.
  virtual Image image(std::int64_t i) const = 0;
  // Returns the number of consecutive images in each file if images of one file should be read together; else empty.
  virtual std::vector<std::int64_t> file_sizes() const { return {}; }
  // "60000 pictures, 9c41...": the number and a hash of the images in memory, or of names, sizes and headers on disk.
  // Checkpoints store this string, so its wording must not change.
  virtual std::string identity() const = 0;
};

// Opens the images that `patterns` match, in order of folders, shards or files:
//   folder   has one subfolder per class with PNG, JPEG and PNM files, also in subfolders of it. Hidden files are
//            ignored. Files with other names are rejected unless reading.skip_bad. Links to folders, broken links,
//            pipes and devices are rejected; with reading.skip_bad they are skipped and counted in a warning.
//   .tar     a WebDataset shard. Consecutive members with the same name up to the first dot form a sample: an image
//            (.jpg, .jpeg, .png, .ppm, .pgm, .pnm) and its label, in .cls, else .json, else .txt. A label is a number
//            from 0 or, with reading.classes, one of these names. A member with a further extension ("a.v2.png") is
//            used if the sample has none without. The number of other members is logged.
//   others   idx and CIFAR files (read_images()), which are held in memory.
// Memory per image is 16 bytes in shards, and 8 bytes plus the file name in folders. Throws UserError naming the file,
// what was found and what was expected, for a corrupt archive, links in it, members that are missing or larger than 64
// MiB, samples without image or label, labels out of range, or no images at all.
std::shared_ptr<const ImageDataset> open_images(const std::vector<std::string>& patterns, const ImageReading& reading);

}  // namespace headroom::data
