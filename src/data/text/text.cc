#include "text.h"

#include <fnmatch.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "foundation/core/files/byte_reader.h"
#include "foundation/core/text/message.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "text_file.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> matches(const std::string& pattern) {
  const fs::path path(pattern);
  const std::string name = path.filename().string();
  std::error_code ignored;
  if (fs::exists(path, ignored) || name.find_first_of("*?") == std::string::npos) {
    return {path};
  }
  std::vector<fs::path> found;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string candidate = entry.path().filename().string();
    if (::fnmatch(name.c_str(), candidate.c_str(), FNM_PERIOD) == 0 && entry.is_regular_file(ignored)) {
      found.push_back(path.has_parent_path() ? entry.path() : fs::path(candidate));
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::int64_t checked_size(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    user_error("{}: does not exist{}", path.string(), download_hint(path.string()));
  }
  if (fs::is_directory(status)) {
    user_error("{}: is a directory; name its files, as in \"{}\"", path.string(), (path / "*.txt").string());
  }
  if (!fs::is_regular_file(status)) {
    user_error("{}: is not a regular file: text is read more than once, so it cannot come from a pipe or device",
               path.string());
  }
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) {
    user_error("{}: cannot be read: {}", path.string(), error.message());
  }
  if (size == 0) {
    user_error("{}: is empty", path.string());
  }
  return static_cast<std::int64_t>(size);
}

}  // namespace

std::string file_ending(const fs::path& path) {
  return lower_case(unpacked_name(path).extension().string());
}

bool is_json_lines(const fs::path& path) {
  constexpr std::string_view kEndings[] = {".jsonl", ".json", ".ndjson", ".jsonlines"};
  return std::find(std::begin(kEndings), std::end(kEndings), file_ending(path)) != std::end(kEndings);
}

std::vector<fs::path> expand_patterns(const std::vector<std::string>& patterns) {
  std::vector<fs::path> paths;
  for (const std::string& pattern : patterns) {
    const std::vector<fs::path> found = matches(pattern);
    if (found.empty()) {
      user_error("{}: no file matches", pattern);
    }
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

std::unique_ptr<tokenizers::TextSource> open_text(const std::vector<std::string>& patterns,
                                                  const config::DataOptions& options, Content content) {
  const FileKind plain = content == Content::bytes ? FileKind::bytes : FileKind::plain;
  std::vector<TextFileInput> inputs;
  for (const fs::path& path : expand_patterns(patterns)) {
    inputs.push_back(
        {.path = path, .kind = is_json_lines(path) ? FileKind::json_lines : plain, .size = checked_size(path)});
  }
  if (inputs.empty()) {
    user_error("data: no text file is named");
  }
  return std::make_unique<FileSequence>(std::move(inputs), options.json_field, options.separator,
                                        options.skip_bad_rows);
}

std::string named_together(const std::vector<std::string>& files) {
  return files.size() == 1 ? files.front() : fmt::format("{} and {} more", files.at(0), files.size() - 1);
}

std::string corpus_name(const config::DataOptions& options, Split split) {
  const std::vector<std::string>& files = split == Split::train ? options.train : options.validation;
  if (!files.empty()) {
    return named_together(files);
  }
  if (options.generator != config::Generator::none) {
    return fmt::format("generated examples of {}", config::name_of(options.generator));
  }
  if (options.synthetic != config::Synthetic::none) {
    return "generated rows";
  }
  return options.train.empty() ? "the built-in corpus (torch's Python sources and C++ headers)"
                               : fmt::format("a share of {}", named_together(options.train));
}

std::string held_out_name(const config::DataOptions& options) {
  if (options.train.empty() || !options.validation.empty() || !options.train_target.empty()) {
    return "";
  }
  return fmt::format("{} of {}, {}", options.validation_fraction, named_together(options.train),
                     options.order == config::Order::shuffled
                         ? "documents drawn from all of it (data.order, data.validation_fraction)"
                         : "its end (data.order, data.validation_fraction)");
}

}  // namespace headroom::data
