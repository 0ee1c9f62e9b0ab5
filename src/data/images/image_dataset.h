// Labelled images by index: in memory, or read from disk and decoded on each access.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

// Decodes image files, and reads the kinds of image sources that open_images() combines.

constexpr std::size_t kLargestImage = std::size_t{64} << 20;  // file size in bytes

// File name extensions of images, in lower case without the dot.
constexpr std::array<std::string_view, 6> kImageEndings = {"jpg", "jpeg", "png", "ppm", "pgm", "pnm"};
bool is_image_ending(std::string_view ending);  // case-insensitive

// Decodes an image, recognising the format by its content. `channels`: 1 for grey (luma of the stored values), 3 for
// red, green, blue. Applies the orientation in Exif data. 16-bit samples are sRGB, as 8-bit samples are. Transparency
// is composited onto black, in linear light. Throws UserError, prefixed with `origin`, if the image is neither PNG,
// JPEG nor PNM (P5 and P6, values up to 255), is corrupt or truncated, or has more than 2^26 pixels (checked before
// allocating).
Image decode_image(const std::string& origin, std::string_view bytes, std::int64_t channels);

// Decodes a file of at most kLargestImage bytes. Ignores its extension.
Image read_image(const std::filesystem::path& path, std::int64_t channels);

// Square images in memory, stored as planes of `channels` x `size` x `size` bytes.
class InMemoryImages : public ImageDataset {
 public:
  InMemoryImages(std::int64_t size, std::int64_t channels) : size_(size), channels_(channels) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  std::int32_t label(std::int64_t i) const override { return labels_[static_cast<std::size_t>(i)]; }
  Image image(std::int64_t i) const override;
  std::string identity() const override;

  std::int64_t bytes_each() const { return channels_ * size_ * size_; }
  std::span<const std::uint8_t> at(std::int64_t i) const;
  const std::vector<std::int32_t>& labels() const { return labels_; }
  void add(std::span<const std::uint8_t> pixels, std::int32_t label);

 private:
  std::int64_t size_, channels_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> labels_;
};

// Reads files, which may be gzip or zstd:
//   idx     recognised by content: unsigned bytes with 3 dimensions are images of one channel, with 1 dimension labels.
//           The labels of "train-images-idx3-ubyte" are in "train-labels-idx1-ubyte" beside it (also with a dot before
//           "idx"), unless the next file in `files` holds labels.
//   .bin    CIFAR's binary format: a label (with 20 or 100 classes a coarse and a fine one), then 3 planes of 32 x 32.
// Throws UserError naming the file, what was found and what was expected, for another format, a wrong image size, a
// file shorter or longer than its header states, different numbers of images and labels, or labels out of range. Memory
// is allocated for the data present, not for the counts in a header.
InMemoryImages read_images(const std::vector<std::filesystem::path>& files, const ImageReading& reading);

// Opens a folder with one subfolder per class. Images are ordered by class, then by file name.
std::unique_ptr<const ImageDataset> open_image_folder(const std::filesystem::path& folder, const ImageReading& reading);

}  // namespace headroom::data
