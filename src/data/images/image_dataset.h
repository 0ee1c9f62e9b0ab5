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
  std::int64_t size = 0, channels = 1;  // expected size and channels; images in folders may have any size
  std::int64_t n_classes = 0;
  // Subfolder names in the order of their classes. Empty: subfolders sorted by name.
  std::vector<std::string> classes;
  bool skip_bad = false;  // folders: accept files of any name, and skip what is not a file
};

class ImageDataset {
 public:
  virtual ~ImageDataset() = default;
  virtual std::int64_t size() const = 0;
  virtual std::int32_t label(std::int64_t i) const = 0;
  // Thread-safe. Throws UserError naming the file if it cannot be read or decoded.
  virtual Image image(std::int64_t i) const = 0;
  // "60000 pictures, 9c41...": the number and a hash of the images in memory, or of names and sizes on disk.
  // Checkpoints store this string, so its wording must not change.
  virtual std::string identity() const = 0;
};

// Opens the images that `patterns` match, folders first:
//   folder   has one subfolder per class with PNG, JPEG and PNM files, also in subfolders of it. Hidden files are
//            ignored. Files with other names are rejected unless reading.skip_bad. Links to folders, broken links,
//            pipes and devices are rejected; with reading.skip_bad they are skipped and counted in a warning.
//   others   idx and CIFAR files (read_images()), which are held in memory.
// Memory per image in a folder is 8 bytes plus the file name. Throws UserError naming the file, what was found and what
// was expected.
std::shared_ptr<const ImageDataset> open_images(const std::vector<std::string>& patterns, const ImageReading& reading);

}  // namespace headroom::data
