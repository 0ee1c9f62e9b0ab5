#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "foundation/core/files/content_hash.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "pairs.h"

namespace headroom::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPairBlanks = " \t\r\v\f";

// Returns why a line is not valid text; empty if it is valid.
std::string text_complaint(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) {
    return "must be text, but holds a NUL byte";
  }
  return is_utf8(line) ? std::string() : "is not valid UTF-8";
}

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (std::size_t tab = 0; tab != std::string_view::npos;) {
    tab = line.find('\t');
    columns.push_back(line.substr(0, tab));
    line.remove_prefix(tab == std::string_view::npos ? line.size() : tab + 1);
  }
  return columns;
}

std::int64_t size_on_disk(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? static_cast<std::int64_t>(fs::file_size(path, ignored)) : 0;
}

}  // namespace

PairReader::PairReader(const PairFiles& files, const config::DataOptions& options)
    : sources_(expand_patterns(files.source)),
      targets_(expand_patterns(files.target)),
      columns_(options.pair_columns),
      skip_(options.skip_bad_rows) {
  if (sources_.empty()) {
    user_error("data.train: must name files of sentence pairs");
  }
  if (!targets_.empty() && targets_.size() != sources_.size()) {
    user_error("{}: is one of {} files of sources, but there are {} of targets: each source file needs its own",
               sources_.front().string(), sources_.size(), targets_.size());
  }
  if (columns_.size() != 2 || columns_[0] == columns_[1]) {
    user_error("data.pair_columns: must be two different columns, the source's and the target's");
  }
  for (const std::vector<fs::path>* side : {&sources_, &targets_}) {
    for (const fs::path& path : *side) {
      total_ += size_on_disk(path);
    }
  }
}

void PairReader::open() {
  source_.emplace(sources_[index_]);
  if (!targets_.empty()) {
    target_.emplace(targets_[index_]);
  }
}

// Reads the next line of each file; returns false at the end of the current file.
bool PairReader::read_lines() {
  const bool more = source_->next(line_);
  if (target_ && target_->next(target_line_) != more) {
    const LineReader &shorter = more ? *target_ : *source_, &longer = more ? *source_ : *target_;
    user_error("{}: must be followed by another line, as its parallel file continues with {}", shorter.place(),
               longer.place());
  }
  return more;
}

// Parses the current lines into `pair`. Returns an error message with the place, or an empty string.
std::string PairReader::parse(TextPair& pair) const {
  for (const auto& [reader, text] : {std::pair(&source_, &line_), std::pair(&target_, &target_line_)}) {
    if (const std::string wrong = *reader ? text_complaint(*text) : std::string(); !wrong.empty()) {
      return fmt::format("{}: {}", (*reader)->place(), wrong);
    }
  }
  if (target_) {
    pair = {std::string(trimmed(line_, kPairBlanks)), std::string(trimmed(target_line_, kPairBlanks))};
    const LineReader& at = pair.source.empty() ? *source_ : *target_;
    return pair.source.empty() || pair.target.empty()
               ? fmt::format("{}: must hold a sentence, got an empty line", at.place())
               : std::string();
  }
  const std::vector<std::string_view> found = columns_of(line_);
  const auto needed = static_cast<std::size_t>(std::max(columns_[0], columns_[1]));
  if (found.size() < needed) {
    return fmt::format("{}: must have {} columns separated by tabs (data.pair_columns), got {}", source_->place(),
                       needed, line_.empty() ? 0 : found.size());
  }
  pair = {std::string(trimmed(found[static_cast<std::size_t>(columns_[0] - 1)], kPairBlanks)),
          std::string(trimmed(found[static_cast<std::size_t>(columns_[1] - 1)], kPairBlanks))};
  if (pair.source.empty() || pair.target.empty()) {
    return fmt::format("{}: column {} must hold a sentence, got nothing", source_->place(),
                       columns_[pair.source.empty() ? 0 : 1]);
  }
  return {};
}

bool PairReader::next(TextPair& pair) {
  while (index_ < sources_.size()) {
    if (!source_) {
      open();
    }
    if (!read_lines()) {
      done_ += consumed();
      source_.reset();
      target_.reset();
      ++index_;
      continue;
    }
    ++rows_;
    const std::string wrong = parse(pair);
    if (wrong.empty()) {
      return true;
    }
    if (!skip_) {
      user_error("{}", wrong);
    }
    if (++skipped_ == 1) {
      complaint_ = wrong;
    }
  }
  if (rows_ == skipped_) {
    user_error("{}: holds no sentence pairs{}", sources_.front().string(), rows_ > 0 ? "; " + complaint_ : "");
  }
  return false;
}

void PairReader::rewind() {
  index_ = 0;
  source_.reset();
  target_.reset();
  rows_ = skipped_ = done_ = 0;
  complaint_.clear();
}

std::int64_t PairReader::consumed() const {
  return (source_ ? source_->consumed() : 0) + (target_ ? target_->consumed() : 0);
}

std::int64_t PairReader::bytes_read() const {
  return done_ + consumed();
}

std::string PairReader::fingerprint() const {
  Sha256 hash;
  hash.update(fmt::format("pairs 2\n{} {} {}\n", columns_[0], columns_[1], skip_));
  for (const std::vector<fs::path>* side : {&sources_, &targets_}) {
    hash.update(fmt::format("{}\n", side->size()));
    for (const fs::path& path : *side) {
      hash.update(content_sha256(path) + "\n");
    }
  }
  return hash.hex();
}

std::vector<TextPair> read_pairs(const PairFiles& files, const config::DataOptions& options) {
  PairReader reader(files, options);
  std::vector<TextPair> pairs;
  for (TextPair pair; reader.next(pair);) {
    pairs.push_back(pair);
  }
  if (reader.skipped() > 0) {
    log_warning("{} of {} rows were left out; the first: {}", reader.skipped(), reader.rows(),
                reader.first_complaint());
  }
  return pairs;
}

}  // namespace headroom::data
