// Labelled pictures in memory, from idx and CIFAR files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "pictures.h"

namespace headroom::data {

class ImageSet : public Pictures {
 public:
  // Pictures that hold `channels` planes of `size` x `size` bytes, row by row.
  ImageSet(std::int64_t size, std::int64_t channels) : size_(size), channels_(channels) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  std::int32_t label(std::int64_t i) const override { return labels_[static_cast<std::size_t>(i)]; }
  DecodedPicture picture(std::int64_t i) const override;
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

// Files, which may be gzip or zstd:
//   idx     by its first bytes: unsigned bytes with 3 axes are pictures of one channel, with 1 axis labels. The labels
//           of "train-images-idx3-ubyte" are in "train-labels-idx1-ubyte" next to it (also with a dot before "idx"),
//           unless the file named after it holds labels.
//   .bin    CIFAR's binary files: a label (with 20 or 100 classes a coarse and a fine one), then 3 planes of 32 x 32.
// Throws UserError naming the file, and what was found and expected: another format, pictures of another size, a
// file that is shorter or longer than it says, other numbers of pictures and labels, labels out of range. Allocates
// for what is there, not for what a file says.
ImageSet read_images(const std::vector<std::filesystem::path>& files, const ImageReading& reading);

}  // namespace headroom::data
