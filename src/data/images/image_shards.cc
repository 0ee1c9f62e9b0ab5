// Tar shards in WebDataset's layout. Opening a shard reads its headers and labels; images are read on access.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "data/text/tar.h"
#include "data/text/token_cache.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "image_file.h"
#include "image_sources.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

// A file that any number of threads may read concurrently at any offset.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const fs::path& path)
      : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat about {};
    if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) {
      user_error("{}: cannot be read: {}", name_, std::strerror(errno));
    }
    size_ = S_ISREG(about.st_mode) ? static_cast<std::uint64_t>(about.st_size) : 0;
  }
  ~RandomAccessFile() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  RandomAccessFile(const RandomAccessFile&) = delete;
  RandomAccessFile& operator=(const RandomAccessFile&) = delete;

  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }

  // Fills `out` from byte `at`. Throws UserError if the file is too short.
  void read(std::uint64_t at, std::span<char> out) const {
    while (!out.empty()) {
      const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got <= 0) {
        user_error("{}: cannot be read at byte {}: {}", name_, at,
                   got < 0 ? std::strerror(errno) : "the file ends there");
      }
      out = out.subspan(static_cast<std::size_t>(got));
      at += static_cast<std::uint64_t>(got);
    }
  }
  std::string read(std::uint64_t at, std::uint64_t size) const {
    std::string bytes(size, '\0');
    read(at, bytes);
    return bytes;
  }

 private:
  std::string name_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

struct ShardEntry {
  std::uint64_t begin = 0;
  std::uint32_t size = 0;
  std::int32_t label = 0;
};

struct ShardIndex {
  std::vector<ShardEntry> entries;
  std::string sum;        // SHA-256 of all headers
  std::int64_t bad = 0;   // number of skipped samples
  std::string complaint;  // error message of the first skipped sample
};

constexpr std::uint64_t kLargestLabel = std::uint64_t{1} << 20;  // bytes; JSON may describe the image at length
constexpr std::uint64_t kLongestName = std::uint64_t{1} << 16;
constexpr std::array<std::string_view, 3> kLabels = {"cls", "json", "txt"};  // by priority

struct Extent {
  std::uint64_t begin = 0, size = 0;
};

// A run of consecutive members with the same name.
struct Sample {
  std::string name;
  std::optional<Extent> image;
  std::array<std::optional<Extent>, kLabels.size()> labels;
};

// Returns the value of "path" in a pax header, which consists of lines "<length> <key>=<value>\n"; empty if missing.
std::string pax_path(const std::string& archive, std::string_view lines) {
  std::string path;
  while (!lines.empty()) {
    const std::size_t blank = std::min(lines.find(' '), lines.size());
    const auto length = whole_number(lines.substr(0, blank));
    if (!length || *length <= std::ssize(lines.substr(0, blank)) || *length > std::ssize(lines)) {
      user_error("{}: is a damaged tar archive: a pax header without line lengths", archive);
    }
    const std::string_view line = lines.substr(blank + 1, static_cast<std::size_t>(*length) - blank - 1);
    constexpr std::string_view kPath = "path=", kSize = "size=";
    if (line.starts_with(kPath)) {
      path = trimmed(line.substr(kPath.size()));
    } else if (line.starts_with(kSize)) {
      user_error("{}: has a member of 8 GiB or more, which is too large for an image", archive);
    }
    lines.remove_prefix(static_cast<std::size_t>(*length));
  }
  return path;
}

class Indexer {
 public:
  Indexer(const std::filesystem::path& path, const ImageReading& reading) : file_(path), reading_(reading) {}

  ShardIndex run() {
    while (const std::optional<TarMember> member = next()) {
      if (member->size > file_.size() - std::min(at_, file_.size())) {
        user_error("{}: is truncated: {} has {} bytes from byte {} on, but the archive ends at byte {}", file_.name(),
                   member->name, member->size, at_, file_.size());
      }
      take(*member);
      at_ += member->has_content() ? tar_blocks(member->size) : 0;
    }
    finish_sample();
    index_.sum = headers_.hex();
    return std::move(index_);
  }

 private:
  std::optional<TarMember> next() {
    if (at_ + kTarBlock > file_.size()) {
      user_error("{}: is truncated: the archive ends at byte {} without an end mark", file_.name(), file_.size());
    }
    TarHeader header;
    file_.read(at_, header);
    headers_.update(std::string_view(header.data(), header.size()));
    std::optional<TarMember> member = read_tar_header(header, file_.name(), at_);
    at_ += kTarBlock;
    return member;
  }

  void take(const TarMember& member) {
    switch (member.type) {
      case '\0':
      case '0':
        add(long_name_.empty() ? member.name : std::exchange(long_name_, {}), {.begin = at_, .size = member.size});
        break;
      case 'x':
        long_name_ = pax_path(file_.name(), name_bytes(member));
        break;
      case 'L':  // GNU tar's long name
        long_name_ = name_bytes(member);
        long_name_.resize(std::min(long_name_.find('\0'), long_name_.size()));
        break;
      case 'g':
      case '5':
        long_name_.clear();
        break;
      default:
        user_error("{}: {} is a link or another member without content", file_.name(), member.name);
    }
  }

  std::string name_bytes(const TarMember& member) const {
    if (member.size > kLongestName) {
      user_error("{}: the header of the member at byte {} has {} bytes, more than {}", file_.name(), at_, member.size,
                 kLongestName);
    }
    return file_.read(at_, member.size);
  }

  void add(const std::string& path, Extent extent) {
    const std::size_t file = path.rfind('/') + 1, dot = path.find('.', file);
    if (dot == std::string::npos || dot == file) {  // hidden files do not belong to a sample
      return;
    }
    const std::string kind = lower_case(std::string_view(path).substr(dot + 1));
    if (const std::string_view name = std::string_view(path).substr(0, dot); name != sample_.name) {
      finish_sample();
      sample_.name = name;
    }
    std::optional<Extent>* place = nullptr;
    if (is_image_ending(kind)) {
      place = &sample_.image;
    } else if (const auto label = std::find(kLabels.begin(), kLabels.end(), kind); label != kLabels.end()) {
      place = &sample_.labels[static_cast<std::size_t>(label - kLabels.begin())];
    }
    if (place != nullptr && *place) {
      user_error("{}: {}: the sample has a second {}", file_.name(), path, place == &sample_.image ? "image" : "label");
    }
    if (place != nullptr) {
      *place = extent;
    }
  }

  void finish_sample() {
    const Sample sample = std::exchange(sample_, {});
    const auto label = std::find_if(sample.labels.begin(), sample.labels.end(), [](const auto& l) { return l; });
    if (!sample.image && label == sample.labels.end()) {
      return;
    }
    try {
      if (!sample.image || label == sample.labels.end()) {
        user_error("{}: sample {} has no {}", file_.name(), sample.name,
                   sample.image ? "label: a member .cls, .json or .txt" : "image: a member .jpg, .jpeg, .png or .ppm");
      }
      if (sample.image->size > kLargestImage) {
        user_error("{}: the image of sample {} has {} bytes, more than {} MiB", file_.name(), sample.name,
                   sample.image->size, kLargestImage >> 20);
      }
      index_.entries.push_back({.begin = sample.image->begin,
                                .size = static_cast<std::uint32_t>(sample.image->size),
                                .label = label_of(sample, **label, label - sample.labels.begin())});
    } catch (const UserError& error) {
      if (!reading_.skip_bad) {
        throw;
      }
      index_.complaint = index_.bad++ == 0 ? error.what() : index_.complaint;
    }
  }

  std::int32_t label_of(const Sample& sample, Extent extent, std::ptrdiff_t kind) const {
    const std::string origin =
        fmt::format("{}: {}.{}", file_.name(), sample.name, kLabels[static_cast<std::size_t>(kind)]);
    if (extent.size > kLargestLabel) {
      user_error("{}: a label may have at most {} bytes, got {}", origin, kLargestLabel, extent.size);
    }
    const std::string text = file_.read(extent.begin, extent.size);
    return class_of(origin, kLabels[static_cast<std::size_t>(kind)] == "json" ? json_label(origin, text)
                                                                              : std::string(trimmed(text)));
  }

  std::string json_label(const std::string& origin, const std::string& text) const {
    const Json json = parse_json(text, origin);
    const auto found = json.is_object() ? json.find(reading_.label_key) : json.end();
    if (!json.is_object() || found == json.end() || !(found->is_number_integer() || found->is_string())) {
      user_error("{}: must be an object with a number or a string as its \"{}\" (data.label_column)", origin,
                 reading_.label_key);
    }
    return found->is_string() ? found->get<std::string>() : found->dump();
  }

  std::int32_t class_of(const std::string& origin, const std::string& label) const {
    const std::vector<std::string>& classes = reading_.classes;
    if (!classes.empty()) {
      const auto found = std::find(classes.begin(), classes.end(), label);
      if (found == classes.end()) {
        user_error("{}: the label must be one of the {} of data.classes, got \"{}\"", origin, classes.size(), label);
      }
      return static_cast<std::int32_t>(found - classes.begin());
    }
    const auto number = whole_number(label);
    if (!number || *number >= reading_.n_classes) {
      user_error("{}: the label (names need data.classes) must be a number from 0 to {}, got \"{}\"", origin,
                 reading_.n_classes - 1, label);
    }
    return static_cast<std::int32_t>(*number);
  }

  RandomAccessFile file_;
  const ImageReading& reading_;
  std::uint64_t at_ = 0;
  std::string long_name_;  // long name of the next member, or empty
  Sample sample_;
  Sha256 headers_;
  ShardIndex index_;
};

class ImageShards : public ImageDataset {
 public:
  ImageShards(std::vector<fs::path> paths, const std::vector<ShardIndex>& indices, std::int64_t channels)
      : paths_(std::move(paths)), channels_(channels) {
    Sha256 sums;
    for (const ShardIndex& index : indices) {
      entries_.insert(entries_.end(), index.entries.begin(), index.entries.end());
      ends_.push_back(std::ssize(entries_));
      sums.update(index.sum);
    }
    identity_ = fmt::format("{} pictures in {} shards, {}", entries_.size(), paths_.size(), dataset_id(sums));
  }

  std::int64_t size() const override { return std::ssize(entries_); }
  std::int32_t label(std::int64_t i) const override { return entries_[static_cast<std::size_t>(i)].label; }
  Image image(std::int64_t i) const override {
    const ShardEntry& entry = entries_[static_cast<std::size_t>(i)];
    const RandomAccessFile file(paths_[shard_of(i)]);
    return decode_image(fmt::format("{}: the image at byte {}", file.name(), entry.begin),
                        file.read(entry.begin, entry.size), channels_);
  }
  std::vector<std::int64_t> file_sizes() const override {
    std::vector<std::int64_t> sizes = ends_;
    std::adjacent_difference(ends_.begin(), ends_.end(), sizes.begin());
    return sizes;
  }
  std::string identity() const override { return identity_; }

 private:
  std::size_t shard_of(std::int64_t i) const {
    return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin());
  }

  std::vector<fs::path> paths_;
  std::int64_t channels_;
  std::vector<ShardEntry> entries_;
  std::vector<std::int64_t> ends_;  // end of each shard in entries_
  std::string identity_;
};

void warn_of_bad(const std::vector<fs::path>& shards, const std::vector<ShardIndex>& indices) {
  std::int64_t bad = 0, good = 0;
  std::string complaint;
  for (const ShardIndex& index : indices) {
    complaint = bad == 0 ? index.complaint : complaint;
    bad += index.bad;
    good += std::ssize(index.entries);
  }
  if (bad > 0) {
    log_warning("{}: {} of {} samples were left out; the first: {}", shards.front().string(), bad, bad + good,
                complaint);
  }
}

}  // namespace

std::unique_ptr<const ImageDataset> open_image_shards(const std::vector<fs::path>& shards,
                                                      const ImageReading& reading) {
  if (!reading.classes.empty() && std::ssize(reading.classes) != reading.n_classes) {
    user_error("data.classes: must name model.n_classes = {} classes, got {}", reading.n_classes,
               reading.classes.size());
  }
  constexpr std::size_t kMany = 16;
  std::optional<Progress> progress;
  if (shards.size() >= kMany) {
    progress.emplace("images", std::ssize(shards), "shard");
  }
  std::vector<ShardIndex> indices(shards.size());
  std::mutex mutex;
  std::int64_t done = 0;
  in_parallel(shards.size(), static_cast<std::size_t>(reading.threads), [&](std::size_t i) {
    if (interrupted()) {
      throw InterruptedError(fmt::format("{}: interrupted while reading the headers of shards", shards[i].string()));
    }
    indices[i] = Indexer(shards[i], reading).run();
    const std::lock_guard lock(mutex);
    ++done;
    if (progress) {
      progress->update(done);
    }
  });
  warn_of_bad(shards, indices);
  return std::make_unique<ImageShards>(shards, indices, reading.channels);
}

}  // namespace headroom::data
