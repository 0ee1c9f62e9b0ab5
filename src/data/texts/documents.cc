#include "headroom/data/documents.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <system_error>

#include "headroom/core/byte_reader.h"
#include "headroom/core/error.h"
#include "headroom/core/utf8.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestText = std::size_t{256} << 20, kLargestTogether = std::size_t{1} << 30;
constexpr std::size_t kMostFiles = 100'000;
constexpr std::size_t kTarBlock = 512;  // of a tar archive
using TarHeader = std::array<char, kTarBlock>;

using Wanted = std::function<bool(std::string_view)>;

std::string unpacked(std::string_view name) {
  return unpacked_name(name).string();
}

bool is_archive(std::string_view name) {
  return unpacked(name).ends_with(".tar") || name.ends_with(".tgz");
}

// Documents under way: what is taken in stays within the limits.
class Collection {
 public:
  void add(std::string name, std::string text) {
    together_ += text.size();
    if (together_ > kLargestTogether) {
      misuse("{}: with the texts before it this is more than {} MiB", name, kLargestTogether >> 20);
    }
    Utf8Checker checker;
    auto wrong = checker.feed(text);
    wrong = wrong ? wrong : checker.finish();
    if (wrong) {
      misuse("{}: is not valid UTF-8 from byte {} on", name, *wrong);
    }
    if (const std::size_t zero = text.find('\0'); zero != std::string::npos) {
      misuse("{}: is not text but binary: byte {} is 0", name, zero);
    }
    const std::string file = unpacked(std::string_view(name).substr(name.find_last_of("/:") + 1));
    const std::size_t dot = file.rfind('.');
    documents_.push_back({.name = name, .stem = dot == 0 ? file : file.substr(0, dot), .text = std::move(text)});
  }
  std::vector<Document> finish(const fs::path& path) {
    if (documents_.empty()) {
      misuse("{}: holds no file of the kind that is read here", path.string());
    }
    std::stable_sort(documents_.begin(), documents_.end(),
                     [](const Document& a, const Document& b) { return a.name < b.name; });
    return std::move(documents_);
  }

 private:
  std::vector<Document> documents_;
  std::size_t together_ = 0;
};

// Up to `size` bytes more of the text; stops at the end of the file.
std::string read_up_to(ByteReader& reader, std::size_t size) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  std::string text;
  while (text.size() < size) {
    const std::size_t before = text.size();
    text.resize(before + std::min(kAtOnce, size - before));
    const std::size_t got = reader.read(text.data() + before, text.size() - before);
    text.resize(before + got);
    if (got == 0) {
      break;
    }
  }
  return text;
}

std::string read_file(const fs::path& path) {
  std::string text = read_up_to(*open_bytes(path), kLargestText + 1);
  if (text.size() > kLargestText) {
    misuse("{}: is longer than {} MiB", path.string(), kLargestText >> 20);
  }
  return text;
}

std::string_view field(const TarHeader& header, std::size_t begin, std::size_t length) {
  const std::string_view all(header.data() + begin, length);
  return all.substr(0, all.find('\0'));
}

// Digits of base 8 between blanks; nothing for anything else.
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

class TarReader {
 public:
  explicit TarReader(const fs::path& path) : path_(path.string()), reader_(open_bytes(path)) {}

  void read(const Wanted& wanted, Collection& into) {
    constexpr std::string_view kWithoutContent = "123456";  // links, devices, folders, pipes
    TarHeader header;
    while (next_header(header)) {
      const std::uint64_t size = size_of(header);
      const char type = header[156];
      const std::string name = name_of(header);
      const bool regular = type == '0' || type == '\0';
      const std::string file = unpacked(std::string_view(name).substr(name.rfind('/') + 1));
      if (regular && wanted(file)) {
        if (size > kLargestText) {
          misuse("{}:{}: is longer than {} MiB", path_, name, kLargestText >> 20);
        }
        into.add(path_ + ":" + name, content(size));
      } else if (kWithoutContent.find(type) == std::string_view::npos) {
        skip(size);
      }
    }
  }

 private:
  // False at the end, a block of zeros; `header` is known to be one then, by its checksum.
  bool next_header(TarHeader& header) {
    if (++members_ > kMostFiles) {
      misuse("{}: holds more than {} files", path_, kMostFiles);
    }
    const std::string bytes = read_up_to(*reader_, kTarBlock);
    if (bytes.size() < kTarBlock) {
      misuse("{}: is truncated: the archive ends at byte {} without an end mark", path_, at_ + bytes.size());
    }
    std::copy(bytes.begin(), bytes.end(), header.begin());
    if (bytes.find_first_not_of('\0') == std::string::npos) {
      return false;
    }
    constexpr std::size_t kSum = 148, kSumLength = 8;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kTarBlock; ++i) {
      sum +=
          i >= kSum && i < kSum + kSumLength ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(header[i]);
    }
    if (octal(field(header, kSum, kSumLength)) != sum) {
      misuse("{}: is no tar archive or a damaged one: the header at byte {} is wrong", path_, at_);
    }
    at_ += kTarBlock;
    return true;
  }

  std::uint64_t size_of(const TarHeader& header) const {
    const auto size = octal(field(header, 124, 12));
    if (!size) {
      misuse("{}: the size of {} in the archive is no number", path_, name_of(header));
    }
    return *size;
  }

  static std::string name_of(const TarHeader& header) {
    const bool posix = field(header, 257, 5) == "ustar";
    const std::string_view prefix = posix ? field(header, 345, 155) : std::string_view(), name = field(header, 0, 100);
    std::string all = prefix.empty() ? std::string(name) : fmt::format("{}/{}", prefix, name);
    std::replace_if(
        all.begin(), all.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
    return all;
  }

  // What fills the last block up is read too.
  std::string content(std::uint64_t size) {
    const std::uint64_t whole = (size + kTarBlock - 1) / kTarBlock * kTarBlock;
    std::string text = read_up_to(*reader_, whole);
    at_ += text.size();
    if (text.size() < whole) {
      misuse("{}: is truncated: the archive ends at byte {} inside a file", path_, at_);
    }
    text.resize(size);
    return text;
  }

  void skip(std::uint64_t size) {
    for (constexpr std::uint64_t kAtOnce = std::uint64_t{1} << 20; size > kAtOnce; size -= kAtOnce) {
      content(kAtOnce);
    }
    content(size);
  }

  std::string path_;
  std::unique_ptr<ByteReader> reader_;
  std::uint64_t at_ = 0;
  std::size_t members_ = 0;
};

void read_folder(const fs::path& folder, const Wanted& wanted, Collection& into) {
  std::error_code error;
  fs::recursive_directory_iterator walk(folder, error);
  std::size_t files = 0;
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    if (++files > kMostFiles) {
      misuse("{}: holds more than {} files", folder.string(), kMostFiles);
    }
    std::error_code ignored;
    if (walk->is_regular_file(ignored) && wanted(unpacked(walk->path().filename().string()))) {
      into.add(walk->path().string(), read_file(walk->path()));
    }
  }
  if (error) {
    misuse("{}: cannot be listed: {}", folder.string(), error.message());
  }
}

}  // namespace

std::vector<Document> read_documents(const fs::path& path, const Wanted& wanted) {
  Collection documents;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    misuse("{}: does not exist", path.string());
  }
  if (fs::is_directory(path, ignored)) {
    read_folder(path, wanted, documents);
  } else if (is_archive(path.filename().string())) {
    TarReader(path).read(wanted, documents);
  } else {
    documents.add(path.string(), read_file(path));
  }
  return documents.finish(path);
}

void for_each_line(std::string_view text, const std::function<void(std::string_view, std::int64_t)>& use) {
  for (std::int64_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    use(line, number);
  }
}

}  // namespace headroom::data
