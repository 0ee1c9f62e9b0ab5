#include <array>
#include <optional>

#include "data/text/text.h"
#include "data/text/token_cache.h"
#include "foundation/core/files/byte_reader.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "image_dataset.h"

namespace headroom::data {

std::span<const std::uint8_t> InMemoryImages::at(std::int64_t i) const {
  return std::span(pixels_).subspan(static_cast<std::size_t>(i * bytes_each()), static_cast<std::size_t>(bytes_each()));
}

void InMemoryImages::add(std::span<const std::uint8_t> pixels, std::int32_t label) {
  pixels_.insert(pixels_.end(), pixels.begin(), pixels.end());
  labels_.push_back(label);
}

Image InMemoryImages::image(std::int64_t i) const {
  const std::span<const std::uint8_t> planes = at(i);
  Image image{.width = size_, .height = size_, .channels = channels_, .pixels = {}};
  image.pixels.resize(planes.size());
  const auto area = static_cast<std::size_t>(size_ * size_), channels = static_cast<std::size_t>(channels_);
  for (std::size_t place = 0; place < area; ++place) {
    for (std::size_t c = 0; c < channels; ++c) {
      image.pixels[place * channels + c] = planes[c * area + place];
    }
  }
  return image;
}

std::string InMemoryImages::identity() const {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(pixels_)));
  hash.update(std::as_bytes(std::span(labels_)));
  return fmt::format("{} pictures, {}", size(), dataset_id(hash));
}

namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kIdxLabels = 0x0801, kIdxImages = 0x0803;  // unsigned bytes with 1 and 3 dimensions
constexpr std::int64_t kCifarSide = 32, kCifarChannels = 3;

// Reads a binary file sequentially.
class BinaryReader {
 public:
  explicit BinaryReader(const fs::path& path) : path_(path.string()), reader_(open_bytes(path)) {}

  // Returns false at the end of the file. Throws UserError if the file ends inside `out`.
  bool fill(std::span<std::uint8_t> out, std::string_view what) {
    const std::size_t have = read_full(*reader_, {reinterpret_cast<char*>(out.data()), out.size()});
    if (have > 0 && have < out.size()) {
      user_error("{}: ends at byte {} in the middle of {}", path_, read_ + have, what);
    }
    read_ += have;
    return have > 0 || out.empty();
  }
  void must_fill(std::span<std::uint8_t> out, std::string_view what) {
    if (!fill(out, what)) {
      user_error("{}: ends at byte {}, where {} must follow", path_, read_, what);
    }
  }
  void must_end(std::string_view after) {
    std::uint8_t more = 0;
    if (fill(std::span(&more, 1), "")) {
      user_error("{}: holds more bytes after {}, from byte {} on", path_, after, read_ - 1);
    }
  }
  std::uint32_t number(std::string_view what) {  // big-endian
    std::array<std::uint8_t, 4> bytes{};
    must_fill(bytes, what);
    std::uint32_t value = 0;
    for (const std::uint8_t byte : bytes) {
      value = value << 8 | byte;
    }
    return value;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<ByteReader> reader_;
  std::size_t read_ = 0;
};

void check_label(const std::string& path, std::int64_t i, std::uint8_t label, const ImageReading& reading) {
  if (label >= reading.n_classes) {
    user_error("{}: label {} of image {} must be below model.n_classes = {}", path, label, i + 1, reading.n_classes);
  }
}

void check_size(const std::string& path, const ImageReading& reading, std::array<std::int64_t, 3> has) {
  if (has[0] != reading.channels || has[1] != reading.size || has[2] != reading.size) {
    user_error("{}: its images have {} channels, {} x {}, but model.image_channels = {} and model.image_size = {}",
               path, has[0], has[1], has[2], reading.channels, reading.size);
  }
}

bool holds_idx_labels(const fs::path& path) {
  return BinaryReader(path).number("an idx file's first number") == kIdxLabels;
}

// Returns the labels file in the folder of an images file, by the usual naming schemes; nullopt if there is none.
std::optional<fs::path> labels_next_to(const fs::path& images) {
  std::string name = images.filename().string();
  for (const auto& [from, to] : {std::pair{"images-idx3", "labels-idx1"}, std::pair{"images.idx3", "labels.idx1"}}) {
    if (const std::size_t at = name.find(from); at != std::string::npos) {
      fs::path neighbour = images.parent_path() / name.replace(at, std::string_view(from).size(), to);
      std::error_code ignored;
      return fs::exists(neighbour, ignored) ? std::optional(neighbour) : std::nullopt;
    }
  }
  return std::nullopt;
}

void read_idx(const fs::path& images, const fs::path& labels, const ImageReading& reading, InMemoryImages& set) {
  BinaryReader image_file(images), label_file(labels);
  if (const std::uint32_t magic = image_file.number("an idx file's first number"); magic != kIdxImages) {
    user_error("{}: must be an idx file of images, beginning with 0x{:08x}, got 0x{:08x}", images.string(), kIdxImages,
               magic);
  }
  if (const std::uint32_t magic = label_file.number("an idx file's first number"); magic != kIdxLabels) {
    user_error("{}: must be an idx file of labels, beginning with 0x{:08x}, got 0x{:08x}", labels.string(), kIdxLabels,
               magic);
  }
  const std::int64_t count = image_file.number("the number of images"), height = image_file.number("their height"),
                     width = image_file.number("their width"), n_labels = label_file.number("the number of labels");
  check_size(images.string(), reading, {1, height, width});
  if (count != n_labels) {
    user_error("{}: holds {} labels, but {} holds {} images", labels.string(), n_labels, images.string(), count);
  }
  std::vector<std::uint8_t> image(static_cast<std::size_t>(height * width));
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint8_t label = 0;
    image_file.must_fill(image, fmt::format("image {} of {}", i + 1, count));
    label_file.must_fill(std::span(&label, 1), fmt::format("label {} of {}", i + 1, count));
    check_label(labels.string(), i, label, reading);
    set.add(image, label);
  }
  image_file.must_end("its last image");
  label_file.must_end("its last label");
}

void read_cifar(const fs::path& path, const ImageReading& reading, InMemoryImages& set) {
  constexpr std::int64_t kCoarse = 20, kFine = 100;
  check_size(path.string(), reading, {kCifarChannels, kCifarSide, kCifarSide});
  const std::size_t labels = reading.n_classes == kCoarse || reading.n_classes == kFine ? 2 : 1;
  std::vector<std::uint8_t> record(labels + static_cast<std::size_t>(set.bytes_each()));
  BinaryReader file(path);
  for (std::int64_t i = 0; file.fill(record, fmt::format("image {}, which has {} bytes", i + 1, record.size())); ++i) {
    const std::uint8_t label = record[reading.n_classes == kFine ? 1 : 0];
    check_label(path.string(), i, label, reading);
    set.add(std::span(record).subspan(labels), label);
  }
}

bool is_cifar(const fs::path& path) {
  return file_ending(path) == ".bin";
}

void read_files(const std::vector<fs::path>& paths, const ImageReading& reading, InMemoryImages& set) {
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (is_cifar(paths[i])) {
      read_cifar(paths[i], reading, set);
      continue;
    }
    std::optional<fs::path> labels;
    if (i + 1 < paths.size() && !is_cifar(paths[i + 1]) && holds_idx_labels(paths[i + 1])) {
      labels = paths[i + 1];
    } else {
      labels = labels_next_to(paths[i]);
    }
    if (std::error_code ignored; !labels && !fs::exists(paths[i], ignored)) {
      user_error("{}: no such file", paths[i].string());
    }
    if (!labels) {
      user_error(
          "{}: has no labels: name their idx file after it, or call them ...images-idx3... and ...labels-idx1...",
          paths[i].string());
    }
    read_idx(paths[i], *labels, reading, set);
    i += i + 1 < paths.size() && paths[i + 1] == *labels ? 1 : 0;
  }
}

}  // namespace

InMemoryImages read_images(const std::vector<fs::path>& files, const ImageReading& reading) {
  InMemoryImages set(reading.size, reading.channels);
  read_files(files, reading, set);
  if (set.size() == 0) {
    user_error("{}: holds no images", files.empty() ? "" : files.front().string());
  }
  return set;
}

}  // namespace headroom::data
