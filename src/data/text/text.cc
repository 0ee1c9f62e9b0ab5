#include "text.h"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "foundation/core/files/byte_reader.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
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
  std::ranges::sort(found);
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
  return std::ranges::find(kEndings, file_ending(path)) != std::end(kEndings);
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

namespace {

constexpr std::size_t kBlock = std::size_t{256} << 10;
constexpr std::size_t kLongestLine = std::size_t{4} << 20;

std::string content_of(const TextFileInput& input) {
  try {
    return content_sha256(input.path);
  } catch (const UserError&) {
    if (input.kind != FileKind::lenient) {
      throw;
    }
    return "unreadable";
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

FileSequence::FileSequence(std::vector<TextFileInput> inputs, std::string json_field, std::string separator,
                           bool skip_bad_rows)
    : inputs_(std::move(inputs)),
      json_field_(std::move(json_field)),
      separator_(std::move(separator)),
      skip_bad_rows_(skip_bad_rows) {
  for (const TextFileInput& input : inputs_) {
    total_ += input.size;
  }
  constexpr std::int64_t kFew = 64, kMany = 4096, kLeast = std::int64_t{2} << 10, kMost = std::int64_t{32} << 10;
  document_bytes_ = std::clamp(total_ / kMany, std::min(kLeast, total_ / kFew), kMost);
}

bool FileSequence::next(std::string& block) {
  while (true) {
    std::size_t cut = block_end();
    if (cut == 0 && !fill()) {
      cut = pending_.size() - taken_;
      if (cut == 0) {
        return false;
      }
    }
    if (cut > 0) {
      block.assign(pending_, taken_, cut);
      take_starts(cut);
      taken_ += cut;
      return true;
    }
  }
}

void FileSequence::rewind() {
  current_.reset();
  index_ = 0;
  done_ = 0;
  pending_.clear();
  taken_ = 0;
  last_ = '\n';
  any_text_ = false;
  starts_.clear();
  block_starts_.clear();
  document_ = line_ = 0;
}

std::string FileSequence::fingerprint() const {
  Sha256 hash;
  hash.update(fmt::format("text 2\n{}\n{}\n{}", json_field_, separator_, skip_bad_rows_ ? "without bad rows\n" : ""));
  for (const TextFileInput& input : inputs_) {
    hash.update(fmt::format("{} {} {}\n", static_cast<int>(input.kind), input.size, content_of(input)));
  }
  return hash.hex();
}

// Returns the size of the block that begins at taken_, or 0 if more text must be read to determine it.
std::size_t FileSequence::block_end() const {
  const std::string_view rest = std::string_view(pending_).substr(taken_);
  if (rest.size() < kBlock) {
    return 0;
  }
  std::size_t line_end = rest.rfind('\n', kBlock - 1);
  if (line_end == std::string_view::npos) {
    line_end = rest.substr(0, kLongestLine).find('\n', kBlock);
  }
  if (line_end != std::string_view::npos) {
    return line_end + 1;
  }
  return rest.size() > kLongestLine ? character_boundary(rest, kLongestLine) : 0;
}

// Reads the next part into pending_; returns false at the end of the last file.
bool FileSequence::fill() {
  pending_.erase(0, taken_);
  for (std::size_t& start : starts_) {
    start -= taken_;
  }
  line_ = std::max(line_ - static_cast<std::int64_t>(taken_), std::int64_t{0});
  document_ -= static_cast<std::int64_t>(taken_);
  taken_ = 0;
  while (index_ < inputs_.size()) {
    if (!current_) {
      current_ = open_text_file(inputs_[index_], json_field_, skip_bad_rows_);
      file_begins_ = true;
    }
    const std::size_t before = pending_.size();
    bool starts_document = false;
    if (current_->more(pending_, starts_document)) {
      separate(before, starts_document);
      find_starts();
      return true;
    }
    warn_of_bad_rows();
    current_.reset();
    done_ += inputs_[index_].size;
    ++index_;
  }
  return false;
}

void FileSequence::warn_of_bad_rows() {
  const TextFile::BadRows bad = current_->bad_rows();
  if (index_ < warned_ || bad.count == 0) {
    return;
  }
  warned_ = index_ + 1;
  log_warning("{}: {} of its rows were left out; the first: {}", inputs_[index_].path.string(), bad.count, bad.first);
}

// Inserts the separator, if any, before the part that begins at `at`.
void FileSequence::separate(std::size_t at, bool starts_document) {
  if (any_text_ && starts_document) {
    pending_.insert(at, separator_);
    at += separator_.size();
  } else if (any_text_ && file_begins_ && last_ != '\n') {
    pending_.insert(at++, 1, '\n');
  }
  if (starts_document || file_begins_) {
    start_document(at);
  }
  any_text_ = true;
  file_begins_ = false;
  last_ = pending_.back();
}

// Starts a document at this position of pending_, unless the previous document is still short.
void FileSequence::start_document(std::size_t at) {
  const auto place = static_cast<std::int64_t>(at);
  if (!any_text_ || place - document_ >= document_bytes_) {
    starts_.push_back(at);
    document_ = place;
  }
  line_ = place;
}

// Cuts a long file: at the first blank line after document_bytes_, or at the first line end after four times as many.
void FileSequence::find_starts() {
  constexpr std::int64_t kLongFiles = 64, kWithoutBlankLines = 4;
  const TextFileInput& input = inputs_[index_];
  if (input.kind == FileKind::json_lines || input.size <= total_ / kLongFiles) {
    return;
  }
  const auto next_line_end = [this] { return pending_.find('\n', static_cast<std::size_t>(line_)); };
  for (std::size_t end = next_line_end(); end != std::string::npos; end = next_line_end()) {
    const auto begin = static_cast<std::size_t>(line_);
    const std::string_view line = std::string_view(pending_).substr(begin, end - begin);
    const std::int64_t bytes = static_cast<std::int64_t>(end) + 1 - document_;
    line_ = static_cast<std::int64_t>(end) + 1;
    if (bytes >= document_bytes_ * (is_blank(line) ? 1 : kWithoutBlankLines)) {
      start_document(end + 1);
    }
  }
}

// Moves the starts in the next `size` bytes to block_starts_.
void FileSequence::take_starts(std::size_t size) {
  block_starts_.clear();
  const auto end = std::ranges::lower_bound(starts_, taken_ + size);
  std::transform(starts_.begin(), end, std::back_inserter(block_starts_),
                 [&](std::size_t start) { return start - taken_; });
  starts_.erase(starts_.begin(), end);
}

}  // namespace headroom::data
