#include "documents.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "foundation/core/files/byte_reader.h"
#include "foundation/core/text/message.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "tar.h"
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
    std::stable_sort(documents_.begin(), documents_.end(),
                     [](const Document& a, const Document& b) { return a.name < b.name; });
    return std::move(documents_);
  }

 private:
  std::vector<Document> documents_;
  std::size_t together_ = 0;
};

// Reads `size` bytes, or fewer at the end of the file.
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
    user_error("{}: is longer than {} MiB", path.string(), kLargestText >> 20);
  }
  return text;
}

class TarReader {
 public:
  explicit TarReader(const fs::path& path) : path_(path.string()), reader_(open_bytes(path)) {}

  void read(const Wanted& wanted, Collection& into) {
    while (const std::optional<TarMember> member = next()) {
      const std::string& name = member->name;
      const std::string file = unpacked(std::string_view(name).substr(name.rfind('/') + 1));
      if (member->is_file() && wanted(file)) {
        if (member->size > kLargestText) {
          user_error("{}:{}: is longer than {} MiB", path_, name, kLargestText >> 20);
        }
        into.add(path_ + ":" + name, content(member->size));
      } else if (member->has_content()) {
        skip(member->size);
      }
    }
  }

 private:
  std::optional<TarMember> next() {
    if (++members_ > kMostFiles) {
      user_error("{}: holds more than {} files", path_, kMostFiles);
    }
    const std::string bytes = read_up_to(*reader_, kTarBlock);
    if (bytes.size() < kTarBlock) {
      user_error("{}: is truncated: the archive ends at byte {} without an end mark", path_, at_ + bytes.size());
    }
    TarHeader header;
    std::copy(bytes.begin(), bytes.end(), header.begin());
    std::optional<TarMember> member = read_tar_header(header, path_, at_);
    at_ += kTarBlock;
    return member;
  }

  // Reads the content of a member of `size` bytes, and skips its padding.
  std::string content(std::uint64_t size) {
    const std::uint64_t whole = tar_blocks(size);
    std::string text = read_up_to(*reader_, whole);
    at_ += text.size();
    if (text.size() < whole) {
      user_error("{}: is truncated: the archive ends at byte {} inside a file", path_, at_);
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
      user_error("{}: holds more than {} files", folder.string(), kMostFiles);
    }
    std::error_code ignored;
    if (walk->is_regular_file(ignored) && wanted(unpacked(walk->path().filename().string()))) {
      into.add(walk->path().string(), read_file(walk->path()));
    }
  }
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
