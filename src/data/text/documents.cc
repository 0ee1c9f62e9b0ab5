#include "documents.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "foundation/core/files/byte_reader.h"
#include "foundation/core/files/folders.h"
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

}  // namespace headroom::data
