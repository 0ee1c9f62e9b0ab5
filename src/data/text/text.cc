#include "text.h"

#include <fnmatch.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "data/synthetic/composition_task.h"
#include "foundation/core/files/byte_reader.h"
#include "foundation/core/text/message.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "text_file.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

std::int64_t size_of(tokenizers::TextSource& text) {
  std::int64_t size = 0;
  for (std::string block; text.next(block);) {
    size += std::ssize(block);
  }
  text.rewind();
  return size;
}

// Returns the position after the first line end at or after `wanted`; else after the last line end before it; else 0. A
// line end at the end of the text does not count.
std::int64_t line_end_near(tokenizers::TextSource& text, std::int64_t wanted, std::int64_t size) {
  std::int64_t begin = 0, last = 0;
  for (std::string block; last < wanted && text.next(block); begin += std::ssize(block)) {
    if (begin + std::ssize(block) == size) {
      block.pop_back();  // excludes a line end at the end of the text
    }
    const auto from = static_cast<std::size_t>(std::max<std::int64_t>(wanted - begin - 1, 0));
    const std::size_t after = block.find('\n', from), found = after == std::string::npos ? block.rfind('\n') : after;
    last = found == std::string::npos ? last : begin + static_cast<std::int64_t>(found) + 1;
  }
  text.rewind();
  return last;
}

// One split of a text that is cut at a line end: the last lines are for validation, the rest for training. The first
// call of next() finds the cut, which reads the text up to two extra times.
class TextShare : public tokenizers::TextSource {
 public:
  TextShare(std::unique_ptr<tokenizers::TextSource> whole, double share, Split split, std::string name)
      : whole_(std::move(whole)), share_(share), split_(split), name_(std::move(name)) {}

  bool next(std::string& block) override {
    find_cut();
    const bool train = split_ == Split::train;
    while ((!train || at_ < cut_) && whole_->next(block)) {
      const auto before = static_cast<std::size_t>(std::clamp<std::int64_t>(cut_ - at_, 0, std::ssize(block)));
      at_ += std::ssize(block);
      train ? block.erase(before) : block.erase(0, before);
      if (!block.empty()) {
        return true;
      }
    }
    return false;
  }
  void rewind() override {
    whole_->rewind();
    at_ = 0;
  }
  std::int64_t bytes_read() const override { return whole_->bytes_read(); }
  std::int64_t bytes_total() const override { return whole_->bytes_total(); }
  std::string fingerprint() const override {
    return fmt::format("{}\n{} held out, {}", whole_->fingerprint(), share_,
                       split_ == Split::train ? "without them" : "they alone");
  }

 private:
  void find_cut() {
    if (cut_ > 0) {
      return;
    }
    const std::int64_t size = size_of(*whole_);
    const auto held_out = static_cast<std::int64_t>(share_ * static_cast<double>(size));
    cut_ = line_end_near(*whole_, std::max<std::int64_t>(size - held_out, 1), size);
    if (cut_ == 0) {
      user_error("data.validation: must name files: {} has a single line, so none can be held out", name_);
    }
  }

  std::unique_ptr<tokenizers::TextSource> whole_;
  double share_;
  Split split_;
  std::string name_;
  std::int64_t cut_ = 0, at_ = 0;  // byte offsets in the whole text
};

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
  return std::make_unique<TextShare>(open_text(options.train, options, content), options.validation_fraction, split,
                                     named_together(options.train));
}

}  // namespace headroom::data
