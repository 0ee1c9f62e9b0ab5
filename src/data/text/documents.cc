#include "documents.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <system_error>
#include <utility>

#include "foundation/core/ceil_div.h"
#include "foundation/core/files/folders.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "text.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestText = std::size_t{256} << 20, kLargestTogether = std::size_t{1} << 30;
constexpr std::size_t kMostFiles = 100'000;

using Wanted = std::function<bool(std::string_view)>;

std::string unpacked(std::string_view name) {
  return unpacked_name(name).string();
}

bool is_archive(std::string_view name) {
  return file_ending(name) == ".tar" || file_ending(name) == ".tgz";
}

// Collects documents and enforces the size limits.
class Collection {
 public:
  void add(const std::string& name, std::string_view text) {
    together_ += text.size();
    if (together_ > kLargestTogether) {
      user_error("{}: the texts exceed {} MiB in total", name, kLargestTogether >> 20);
    }
    Utf8Checker checker;
    auto wrong = checker.feed(text);
    wrong = wrong ? wrong : checker.finish();
    if (wrong) {
      user_error("{}: is not valid UTF-8 from byte {} on", name, *wrong);
    }
    if (const std::size_t zero = text.find('\0'); zero != std::string_view::npos) {
      user_error("{}: is not text but binary: byte {} is 0", name, zero);
    }
    const std::string file = unpacked(std::string_view(name).substr(name.find_last_of("/:") + 1));
    const std::size_t dot = file.rfind('.');
    documents_.push_back({.name = name,
                          .stem = dot == 0 ? file : file.substr(0, dot),
                          .text = std::string(without_byte_order_mark(text))});
  }
  std::vector<Document> finish(const fs::path& path) {
    if (documents_.empty()) {
      user_error("{}: holds no file of the expected kind", path.string());
    }
    std::ranges::stable_sort(documents_, [](const Document& a, const Document& b) { return a.name < b.name; });
    return std::move(documents_);
  }

 private:
  std::vector<Document> documents_;
  std::size_t together_ = 0;
};

// Reads the members of an archive in one pass.
void read_archive(const fs::path& path, const Wanted& wanted, Collection& into) {
  TarReader archive(path);
  std::size_t members = 0;
  while (const std::optional<TarMember> member = archive.next()) {
    if (++members > kMostFiles) {
      user_error("{}: holds more than {} files", path.string(), kMostFiles);
    }
    const std::string name = fmt::format("{}:{}", path.string(), member->name);
    if (member->is_file() && wanted(unpacked(std::string_view(member->name).substr(member->name.rfind('/') + 1)))) {
      if (member->size > kLargestText) {
        user_error("{}: is longer than {} MiB", name, kLargestText >> 20);
      }
      into.add(name, unpacked_content(archive.content(*member), name, kLargestText));
    }
  }
}

void read_folder(const fs::path& folder, const Wanted& wanted, Collection& into) {
  std::size_t files = 0;
  const std::error_code error = walk_folder(folder, [&](const fs::directory_entry& entry) {
    if (++files > kMostFiles) {
      user_error("{}: holds more than {} files", folder.string(), kMostFiles);
    }
    std::error_code ignored;
    if (entry.is_regular_file(ignored) && wanted(unpacked(entry.path().filename().string()))) {
      into.add(entry.path().string(), read_unpacked(entry.path(), kLargestText));
    }
    return true;
  });
  if (error) {
    user_error("{}: cannot be listed: {}", folder.string(), error.message());
  }
}

}  // namespace

std::vector<Document> read_documents(const fs::path& path, const Wanted& wanted) {
  Collection documents;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    user_error("{}: does not exist{}", path.string(), download_hint(path.string()));
  }
  if (fs::is_directory(path, ignored)) {
    read_folder(path, wanted, documents);
  } else if (is_archive(path.filename().string())) {
    read_archive(path, wanted, documents);
  } else {
    documents.add(path.string(), read_unpacked(path, kLargestText));
  }
  return documents.finish(path);
}

void for_each_line(std::string_view text, const std::function<void(std::string_view, std::int64_t)>& use) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    std::string_view line = take_line(text);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    use(line, number);
  }
}

namespace {

constexpr std::size_t kTarBlock = 512;  // bytes; headers and contents begin at multiples of this
constexpr std::size_t kReadAtOnce = std::size_t{64} << 10;
using TarHeader = std::array<char, kTarBlock>;

std::string_view field(const TarHeader& header, std::size_t begin, std::size_t length) {
  const std::string_view all(header.data() + begin, length);
  return all.substr(0, all.find('\0'));
}

// Parses octal digits surrounded by spaces.
std::optional<std::uint64_t> octal(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  text = first == std::string_view::npos ? std::string_view() : text.substr(first);
  text = text.substr(0, text.find(' '));
  if (text.empty() || text.find_first_not_of("01234567") != std::string_view::npos) {
    return std::nullopt;
  }
  return std::accumulate(text.begin(), text.end(), std::uint64_t{0}, [](std::uint64_t sum, char digit) {
    return sum * 8 + static_cast<std::uint64_t>(digit - '0');
  });
}

std::string name_of(const TarHeader& header) {
  const bool posix = field(header, 257, 5) == "ustar";
  const std::string_view prefix = posix ? field(header, 345, 155) : std::string_view(), name = field(header, 0, 100);
  return prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
}

std::string without_control_characters(std::string name) {
  std::replace_if(
      name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return name;
}

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
      user_error("{}: has a member of 8 GiB or more, which is not supported", archive);
    }
    lines.remove_prefix(static_cast<std::size_t>(*length));
  }
  return path;
}

}  // namespace

std::size_t TarReader::read(std::span<char> out) {
  const std::size_t got = read_full(*bytes_, out);
  at_ += got;
  return got;
}

void TarReader::skip_content() {
  for (std::array<char, kReadAtOnce> skipped{}; at_ < next_;) {
    if (read(std::span(skipped).first(std::min<std::uint64_t>(skipped.size(), next_ - at_))) == 0) {
      return;  // the missing header is reported
    }
  }
}

std::optional<TarMember> TarReader::read_header() {
  skip_content();
  TarHeader header;
  if (read(header) < kTarBlock) {
    user_error("{}: is truncated: the archive ends at byte {} without an end mark", archive_, at_);
  }
  if (std::ranges::all_of(header, [](char c) { return c == '\0'; })) {
    return std::nullopt;
  }
  constexpr std::size_t kSum = 148, kSumLength = 8, kType = 156;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kTarBlock; ++i) {
    sum += i >= kSum && i < kSum + kSumLength ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(header[i]);
  }
  if (octal(field(header, kSum, kSumLength)) != sum) {
    user_error("{}: not a tar archive or damaged: bad checksum in the header at byte {}", archive_, at_ - kTarBlock);
  }
  TarMember member{.name = without_control_characters(name_of(header)), .type = header[kType]};
  const auto size = octal(field(header, 124, 12));
  if (!size) {
    user_error("{}: the size of member {} is not a number", archive_, member.name);
  }
  member.size = *size;
  const bool has_content = member.type < '1' || member.type > '6';
  next_ = at_ + (has_content ? round_up(member.size, kTarBlock) : 0);
  return member;
}

std::optional<TarMember> TarReader::next() {
  constexpr std::uint64_t kLongestName = std::uint64_t{1} << 16;
  constexpr int kMostHeaders = 16;  // of one member
  std::string long_name;
  for (int headers = 0; std::optional<TarMember> member = read_header(); ++headers) {
    if (headers == kMostHeaders) {
      user_error("{}: is a damaged tar archive: more than {} headers of one member, up to byte {}", archive_,
                 kMostHeaders, at_);
    }
    if (member->type != 'x' && member->type != 'L' && member->type != 'g') {
      member->name = long_name.empty() ? member->name : without_control_characters(std::move(long_name));
      return member;
    }
    long_name.clear();
    if (member->type == 'g') {  // settings for the whole archive, none of which matter here
      continue;
    }
    if (member->size > kLongestName) {
      user_error("{}: the header of the member at byte {} has {} bytes, more than {}", archive_, at_, member->size,
                 kLongestName);
    }
    const std::string bytes = content(*member);
    long_name = member->type == 'x' ? pax_path(archive_, bytes) : bytes.substr(0, bytes.find('\0'));
  }
  return std::nullopt;
}

std::string TarReader::content(const TarMember& member) {
  std::string bytes;
  while (bytes.size() < member.size) {  // grows with the data present: a corrupt size must not allocate memory
    const std::size_t before = bytes.size(), wanted = std::min<std::uint64_t>(kReadAtOnce, member.size - before);
    bytes.resize(before + wanted);
    if (read(std::span(bytes).subspan(before)) < wanted) {
      user_error("{}: is truncated: the archive ends at byte {}, inside {}", archive_, at_, member.name);
    }
  }
  return bytes;
}

}  // namespace headroom::data
