// Labelled pictures in memory, from idx and CIFAR files and from folders of PNG and JPEG files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headroom/config/run_options.h"

namespace headroom::data {

struct ImageReading {
  std::int64_t size = 0, channels = 1;  // what the pictures must have
  std::int64_t n_classes = 0;
  std::vector<std::string> classes;  // names of the folders, in the order of their classes; empty: sorted
  bool skip_bad = false;             // files of a folder that cannot be read are counted, and a warning says so
};

class ImageSet {
 public:
  // Pictures that hold `channels` planes of `size` x `size` bytes, row by row.
  ImageSet(std::int64_t size, std::int64_t channels) : size_(size), channels_(channels) {}

  std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  std::int64_t side() const { return size_; }
  std::int64_t channels() const { return channels_; }
  std::int64_t bytes_each() const { return channels_ * size_ * size_; }
  std::span<const std::uint8_t> at(std::int64_t i) const;
  const std::vector<std::int32_t>& labels() const { return labels_; }
  void add(std::span<const std::uint8_t> pixels, std::int32_t label);
  // "60000 pictures, 9c41...".
  std::string identity() const;

 private:
  std::int64_t size_, channels_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::int32_t> labels_;
};

// Files, which may be gzip, or folders:
//   idx     by its first bytes: unsigned bytes with 3 axes are pictures of one channel, with 1 axis labels. The labels
//           of "train-images-idx3-ubyte" are in "train-labels-idx1-ubyte" next to it (also with a dot before "idx"),
//           unless the file named after it holds labels.
//   .bin    CIFAR's binary files: a label (with 20 or 100 classes a coarse and a fine one), then 3 planes of 32 x 32.
//   folder  holds a folder for each class, and these PNG and JPEG files; hidden ones are left out. Their middle square
//           is scaled to what the size must be.
// Throws MisuseError naming the file, and what was found and expected: another format, pictures of another size, a
// file that is shorter or longer than it says, other numbers of pictures and labels, labels out of range. Allocates
// for what is there, not for what a file says.
ImageSet read_images(const std::vector<std::string>& patterns, const ImageReading& reading);

struct Picture {
  std::vector<double> mean, deviation;  // of each channel
  std::int64_t shift = 0;               // pixels at most, each way; what comes in is black (0)
  bool flip = false;
};

// data.pixel_mean and pixel_deviation for so many channels: one value is for all of them, none is 0.5. Throws
// MisuseError for another number of values.
Picture picture_options(const config::DataOptions& options, std::int64_t channels);

// Channel c of `out` becomes (pixel / 255 - mean[c]) / deviation[c] of picture `i`; with shift or flip moved and
// mirrored as `seed` says.
void copy_picture(const ImageSet& set, std::int64_t i, const Picture& picture, std::uint64_t seed, float* out);

}  // namespace headroom::data
