#include <string_view>
#include <system_error>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/files.h"
#include "text_file.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = std::size_t{256} << 10;
constexpr std::size_t kLongestLine = std::size_t{4} << 20;

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
}

bool FileSequence::next(std::string& block) {
  while (true) {
    const std::size_t cut = block_end();
    if (cut > 0) {
      block.assign(pending_, taken_, cut);
      taken_ += cut;
      return true;
    }
    if (!fill()) {
      block.assign(pending_, taken_);
      pending_.clear();
      taken_ = 0;
      return !block.empty();
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
}

std::string FileSequence::fingerprint() const {
  Sha256 hash;
  hash.update(fmt::format("text 2\n{}\n{}\n{}", json_field_, separator_, skip_bad_rows_ ? "without bad rows\n" : ""));
  for (const TextFileInput& input : inputs_) {
    std::error_code ignored;
    const auto time = fs::last_write_time(input.path, ignored).time_since_epoch().count();
    hash.update(fmt::format("{}\n{} {} {}\n", fs::absolute(input.path).lexically_normal().string(),
                            static_cast<int>(input.kind), input.size, time));
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
  } else if (any_text_ && file_begins_ && last_ != '\n') {
    pending_.insert(at, 1, '\n');
  }
  any_text_ = true;
  file_begins_ = false;
  last_ = pending_.back();
}

}  // namespace headroom::data
