#include "shard_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "data/text/tar_header.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/json.h"
#include "picture_file.h"

namespace headroom::data {
namespace {

constexpr std::uint64_t kLargestLabel = std::uint64_t{1} << 20;  // a JSON object may describe its picture at length
constexpr std::uint64_t kLongestName = std::uint64_t{1} << 16;
constexpr std::array<std::string_view, 3> kLabels = {"cls", "json", "txt"};  // the first that a sample has

struct Extent {
  std::uint64_t begin = 0, size = 0;
};

// Members that follow each other under one name.
struct Sample {
  std::string name;
  std::optional<Extent> picture;
  std::array<std::optional<Extent>, kLabels.size()> labels;
};

// The value of "path" in a pax header, lines of "<their length> <key>=<value>\n"; nothing where it has none.
std::string pax_path(const std::string& archive, std::string_view lines) {
  std::string path;
  while (!lines.empty()) {
    const std::size_t blank = std::min(lines.find(' '), lines.size());
    const auto length = whole_number(lines.substr(0, blank));
    if (!length || *length <= std::ssize(lines.substr(0, blank)) || *length > std::ssize(lines)) {
      user_error("{}: is a damaged tar archive: a pax header whose lines have no lengths", archive);
    }
    const std::string_view line = lines.substr(blank + 1, static_cast<std::size_t>(*length) - blank - 1);
    constexpr std::string_view kPath = "path=", kSize = "size=";
    if (line.starts_with(kPath)) {
      path = trimmed(line.substr(kPath.size()));
    } else if (line.starts_with(kSize)) {
      user_error("{}: has a member of 8 GiB or more, which is no picture", archive);
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
      case 'L':  // GNU
        long_name_ = name_bytes(member);
        long_name_.resize(std::min(long_name_.find('\0'), long_name_.size()));
        break;
      case 'g':
      case '5':
        long_name_.clear();
        break;
      default:
        user_error("{}: {} is a link, or another kind of member that holds no bytes of its own", file_.name(),
                   member.name);
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
    if (dot == std::string::npos || dot == file) {  // hidden files are none of a sample's
      return;
    }
    const std::string kind = lower_case(std::string_view(path).substr(dot + 1));
    if (const std::string_view name = std::string_view(path).substr(0, dot); name != sample_.name) {
      finish_sample();
      sample_.name = name;
    }
    std::optional<Extent>* place = nullptr;
    if (is_picture_ending(kind)) {
      place = &sample_.picture;
    } else if (const auto label = std::find(kLabels.begin(), kLabels.end(), kind); label != kLabels.end()) {
      place = &sample_.labels[static_cast<std::size_t>(label - kLabels.begin())];
    }
    if (place != nullptr && *place) {
      user_error("{}: {}: the sample has a second {}", file_.name(), path,
                 place == &sample_.picture ? "picture" : "label");
    }
    if (place != nullptr) {
      *place = extent;
    }
  }

  void finish_sample() {
    const Sample sample = std::exchange(sample_, {});
    const auto label = std::find_if(sample.labels.begin(), sample.labels.end(), [](const auto& l) { return l; });
    if (!sample.picture && label == sample.labels.end()) {
      return;
    }
    try {
      if (!sample.picture || label == sample.labels.end()) {
        user_error(
            "{}: sample {} has no {}", file_.name(), sample.name,
            sample.picture ? "label: a member .cls, .json or .txt" : "picture: a member .jpg, .jpeg, .png or .ppm");
      }
      if (sample.picture->size > kLargestPicture) {
        user_error("{}: the picture of sample {} has {} bytes, more than {} MiB", file_.name(), sample.name,
                   sample.picture->size, kLargestPicture >> 20);
      }
      index_.places.push_back({.begin = sample.picture->begin,
                               .size = static_cast<std::uint32_t>(sample.picture->size),
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
      user_error("{}: a label may have {} bytes, got {}", origin, kLargestLabel, extent.size);
    }
    const std::string text = file_.read(extent.begin, extent.size);
    return class_of(origin, kLabels[static_cast<std::size_t>(kind)] == "json" ? json_label(origin, text)
                                                                              : std::string(trimmed(text)));
  }

  std::string json_label(const std::string& origin, const std::string& text) const {
    const Json json = parse_json(text, origin);
    const auto found = json.is_object() ? json.find(reading_.label_key) : json.end();
    if (!json.is_object() || found == json.end() || !(found->is_number_integer() || found->is_string())) {
      user_error("{}: must be an object with a number or a text as its \"{}\" (data.label_column)", origin,
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

  PlacedReader file_;
  const ImageReading& reading_;
  std::uint64_t at_ = 0;
  std::string long_name_;  // of the next member
  Sample sample_;
  Sha256 headers_;
  ShardIndex index_;
};

}  // namespace

PlacedReader::PlacedReader(const std::filesystem::path& path)
    : name_(path.string()), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  struct stat about {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &about) != 0) {
    user_error("{}: cannot be read: {}", name_, std::strerror(errno));
  }
  size_ = S_ISREG(about.st_mode) ? static_cast<std::uint64_t>(about.st_size) : 0;
}

PlacedReader::~PlacedReader() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

void PlacedReader::read(std::uint64_t at, std::span<char> out) const {
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

std::string PlacedReader::read(std::uint64_t at, std::uint64_t size) const {
  std::string bytes(size, '\0');
  read(at, bytes);
  return bytes;
}

ShardIndex index_shard(const std::filesystem::path& path, const ImageReading& reading) {
  return Indexer(path, reading).run();
}

}  // namespace headroom::data
