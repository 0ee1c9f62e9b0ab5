#include "run_text.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "composition_task.h"
#include "data/text/text.h"
#include "data/text/text_file.h"
#include "foundation/core/files/folders.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::data {

std::unique_ptr<tokenizers::TextSource> open_split(const config::DataOptions& options, Split split, Content content) {
  if (options.train.empty() && options.validation.empty()) {
    if (options.generator == config::Generator::composition) {
      return composition_text(composition_rows(options, split));
    }
    return open_built_in_corpus(split);
  }
  if (options.train.empty()) {
    user_error("data.train: must name at least one file when data.validation does");
  }
  if (!options.validation.empty()) {
    return open_text(split == Split::train ? options.train : options.validation, options, content);
  }
  if (!(options.validation_fraction > 0.0)) {
    user_error("data.validation: must name at least one file when data.validation_fraction is 0");
  }
  return split_of(open_text(options.train, options, content), options, split, named_together(options.train));
}

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kEveryForValidation = 20;
// These limits bound the evaluation time and the influence of any single file.
constexpr std::int64_t kValidationBytes = std::int64_t{1} << 20, kLargestForValidation = std::int64_t{128} << 10;

fs::path torch_folder() {
  const char* set = std::getenv("HEADROOM_TORCH_DIR");
  fs::path folder = set != nullptr && *set != '\0' ? set : HEADROOM_TORCH_DIR;
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    fail(
        "the built-in corpus: torch not found at {}; set HEADROOM_TORCH_DIR to the folder of the installed torch, or "
        "data.train and data.validation to files of your own",
        folder.string());
  }
  return folder;
}

bool is_source(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".py" || extension == ".h" || extension == ".hpp" || extension == ".cuh";
}

// Returns the sorted names of all source files, relative to `folder`.
std::vector<std::string> source_names(const fs::path& folder) {
  std::vector<std::string> names;
  const auto visit = [&](const fs::directory_entry& entry) {
    if (is_source(entry.path()) && !entry.is_symlink() && entry.is_regular_file()) {
      names.push_back(entry.path().lexically_relative(folder).generic_string());
    }
    return true;
  };
  const std::error_code error = walk_folder(folder, visit, fs::directory_options::skip_permission_denied);
  if (error) {
    fail("the built-in corpus: {}: cannot be listed: {}", folder.string(), error.message());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::unique_ptr<tokenizers::TextSource> open_built_in_corpus(Split split) {
  const fs::path folder = torch_folder();
  const std::vector<std::string> names = source_names(folder);
  std::vector<std::pair<std::string, std::string>> chosen;  // hash of the name, name
  for (std::size_t i = 0; i < names.size(); ++i) {
    const bool validates = i % kEveryForValidation == kEveryForValidation - 1;
    if (validates == (split == Split::validation)) {
      chosen.emplace_back(sha256_of(names[i]), names[i]);
    }
  }
  if (chosen.empty()) {
    fail("the built-in corpus: {} holds too few Python sources and C++ headers", folder.string());
  }
  std::ranges::sort(chosen);
  std::vector<TextFileInput> inputs;
  std::int64_t total = 0;
  for (const auto& [hash, name] : chosen) {
    std::error_code ignored;
    const std::uintmax_t known = fs::file_size(folder / name, ignored);
    const std::int64_t size = ignored ? 0 : static_cast<std::int64_t>(known);
    if (split == Split::validation && (size > kLargestForValidation || total + size > kValidationBytes)) {
      continue;
    }
    inputs.push_back({.path = folder / name, .kind = FileKind::lenient, .size = size});
    total += size;
  }
  return std::make_unique<FileSequence>(std::move(inputs), "", "");
}

}  // namespace headroom::data
