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
#include <span>
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
#include "image_sources.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

// A file that any number of threads may read concurrently at any offset.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const fs::path& path)
      : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
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

  // Fills `out` from byte `at`; returns the number of bytes, fewer only at the end of the file.
  std::size_t read(std::uint64_t at, std::span<char> out) const {
    std::size_t filled = 0;
    while (filled < out.size()) {
      const ssize_t got =
          ::pread(descriptor_, out.data() + filled, out.size() - filled, static_cast<off_t>(at + filled));
      if (got < 0 && errno != EINTR) {
        user_error("{}: cannot be read at byte {}: {}", name_, at + filled, std::strerror(errno));
      }
      if (got == 0) {
        break;
      }
      filled += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    }
    return filled;
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
  std::string sum;         // SHA-256 of all headers
  std::int64_t bad = 0;    // number of skipped samples
  std::string complaint;   // error message of the first skipped sample
  std::int64_t other = 0;  // number of members that are neither images nor labels
  std::string first_other;
};

constexpr std::uint64_t kLargestLabel = std::uint64_t{1} << 20;  // bytes; JSON may describe the image at length
constexpr std::array<std::string_view, 3> kLabels = {"cls", "json", "txt"};  // by priority

// A member that a sample uses. One with a further extension ("a.v2.png" of sample a) yields to one without.
struct Used {
  TarMember member;
  bool dotted = false;
};

// A run of consecutive members with the same name.
struct Sample {
  std::string name;
  std::optional<Used> image;
  std::array<std::optional<Used>, kLabels.size()> labels;
};

class Indexer {
 public:
  Indexer(const std::filesystem::path& path, const ImageReading& reading)
      : file_(path),
        reading_(reading),
        archive_(file_.name(), [this](std::uint64_t at, std::span<char> out) { return file_.read(at, out); }) {}

  ShardIndex run() {
    while (const std::optional<TarMember> member = archive_.next()) {
      if (member->is_file()) {
        if (member->size > file_.size() - std::min(member->begin, file_.size())) {
          user_error("{}: is truncated: {} has {} bytes from byte {} on, but the archive ends at byte {}", file_.name(),
                     member->name, member->size, member->begin, file_.size());
        }
        add(*member);
      } else if (member->type != kDirectory) {
        user_error("{}: {} is a link or another member without content", file_.name(), member->name);
      }
    }
    finish_sample();
    index_.sum = archive_.header_hash();
    return std::move(index_);
  }

 private:
  static constexpr char kDirectory = '5';

  void add(const TarMember& member) {
    const std::string& path = member.name;
    const std::size_t file = path.rfind('/') + 1, dot = path.find('.', file);
    if (dot == std::string::npos || dot == file) {  // hidden files do not belong to a sample
      return leave_out(member);
    }
    if (const std::string_view name = std::string_view(path).substr(0, dot); name != sample_.name) {
      finish_sample();
      sample_.name = name;
    }
    const std::size_t last = path.rfind('.');
    const std::string kind = lower_case(std::string_view(path).substr(last + 1));
    const auto label = std::find(kLabels.begin(), kLabels.end(), kind);
    if (is_image_ending(kind)) {
      use(sample_.image, {.member = member, .dotted = last != dot});
    } else if (label != kLabels.end()) {
      use(sample_.labels[static_cast<std::size_t>(label - kLabels.begin())], {.member = member, .dotted = last != dot});
    } else {
      leave_out(member);
    }
  }

  void use(std::optional<Used>& place, Used used) {
    if (place && place->dotted == used.dotted) {
      user_error("{}: {}: the sample has a second {}", file_.name(), used.member.name,
                 &place == &sample_.image ? "image" : "label");
    }
    if (place) {
      leave_out((used.dotted ? used : *place).member);
    }
    if (!place || !used.dotted) {
      place = std::move(used);
    }
  }

  void leave_out(const TarMember& member) {
    index_.first_other = index_.other++ == 0 ? member.name : index_.first_other;
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
      const TarMember& image = sample.image->member;
      if (image.size > kLargestImage) {
        user_error("{}: the image of sample {} has {} bytes, more than {} MiB", file_.name(), sample.name, image.size,
                   kLargestImage >> 20);
      }
      index_.entries.push_back(
          {.begin = image.begin, .size = static_cast<std::uint32_t>(image.size), .label = label_of((*label)->member)});
    } catch (const UserError& error) {
      if (!reading_.skip_bad) {
        throw;
      }
      index_.complaint = index_.bad++ == 0 ? error.what() : index_.complaint;
    }
  }

  std::int32_t label_of(const TarMember& member) const {
    const std::string origin = fmt::format("{}: {}", file_.name(), member.name);
    if (member.size > kLargestLabel) {
      user_error("{}: a label may have at most {} bytes, got {}", origin, kLargestLabel, member.size);
    }
    std::string text(member.size, '\0');
    file_.read(member.begin, text);
    return class_of(origin,
                    lower_case(member.name).ends_with(".json") ? json_label(origin, text) : std::string(trimmed(text)));
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
  TarReader archive_;
  Sample sample_;
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
    std::string bytes(entry.size, '\0');
    if (const std::size_t got = file.read(entry.begin, bytes); got < bytes.size()) {
      user_error("{}: cannot be read at byte {}: the file ends there", file.name(), entry.begin + got);
    }
    return decode_image(fmt::format("{}: the image at byte {}", file.name(), entry.begin), bytes, channels_);
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

void report_left_out(const std::vector<fs::path>& shards, const std::vector<ShardIndex>& indices) {
  ShardIndex all;
  std::int64_t good = 0;
  for (const ShardIndex& index : indices) {
    all.complaint = all.bad == 0 ? index.complaint : all.complaint;
    all.first_other = all.other == 0 ? index.first_other : all.first_other;
    all.bad += index.bad;
    all.other += index.other;
    good += std::ssize(index.entries);
  }
  const std::string name = shards.front().string();
  if (all.bad > 0) {
    log_warning("{}: {} of {} samples were left out; the first: {}", name, all.bad, all.bad + good, all.complaint);
  }
  if (all.other > 0) {
    log_info("{}: {} members are not used, since they are neither images nor labels; the first: {}", name, all.other,
             all.first_other);
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
  report_left_out(shards, indices);
  return std::make_unique<ImageShards>(shards, indices, reading.channels);
}

}  // namespace headroom::data
