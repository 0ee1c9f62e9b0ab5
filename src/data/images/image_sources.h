// Decodes image files, and reads the kinds of image sources that open_images() combines.
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

#include "image_dataset.h"

namespace headroom::data {

constexpr std::size_t kLargestImage = std::size_t{64} << 20;  // file size in bytes

// File name extensions of images, in lower case without the dot.
constexpr std::array<std::string_view, 6> kImageEndings = {"jpg", "jpeg", "png", "ppm", "pgm", "pnm"};
bool is_image_ending(std::string_view ending);  // case-insensitive

// Decodes an image, recognising the format by its content. `channels`: 1 for grey (luma of the stored values), 3 for
// red, green, blue. Applies the orientation in Exif data. Samples of 16 bits are sRGB, as those of 8 bits are.
// Transparency is composited onto black, in linear light. Throws UserError, prefixed with `origin`, if the image is
// neither PNG, JPEG nor PNM (P5 and P6, values up to 255), is corrupt or truncated, or has more than 2^26 pixels
// (checked before allocating).
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
