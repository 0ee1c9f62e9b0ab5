#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "data/tokens/example_order.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/random.h"
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

namespace {

constexpr std::uint64_t kHeldOut = 1, kSameTarget = 2, kHeldOrder = 3;  // hash domains

std::int64_t word_count(std::string_view sentence) {
  std::int64_t words = 0;
  for (bool inside = false; !sentence.empty();) {
    const std::size_t blank = leading_blank(sentence);
    words += blank == 0 && !inside ? 1 : 0;
    inside = blank == 0;
    sentence.remove_prefix(std::max<std::size_t>(blank, 1));
  }
  return words;
}

double held_share(const config::DataOptions& options) {
  if (!options.validation.empty()) {
    return 0.0;
  }
  if (!(options.validation_fraction > 0.0)) {
    user_error("data.validation: must name files of sentence pairs when data.validation_fraction is 0");
  }
  return options.validation_fraction;
}

}  // namespace

bool is_held_out(const std::string& source, double share) {
  return static_cast<double>(mix(kHeldOut, source) >> 11) * 0x1.0p-53 < share;
}

TrainingPairs::TrainingPairs(const config::DataOptions& options)
    : reader_({.source = options.train, .target = options.train_target}, options),
      share_(held_share(options)),
      length_ratio_(options.max_length_ratio),
      most_words_(options.max_words) {
  if (share_ > 0.0) {
    for (TextPair pair; reader_.next(pair);) {
      if (is_held_out(pair.source, share_)) {
        held_targets_.insert(mix(kSameTarget, pair.target));
      }
    }
    rewind();
  }
}

bool TrainingPairs::is_clean(const TextPair& pair) const {
  if (length_ratio_ == 0.0 && most_words_ == 0) {
    return true;
  }
  const auto [fewer, more] = std::minmax({word_count(pair.source), word_count(pair.target)});
  const double ratio = static_cast<double>(more) / static_cast<double>(fewer);  // the reader rejects empty sides
  return (most_words_ == 0 || more <= most_words_) && (length_ratio_ == 0.0 || ratio <= length_ratio_);
}

bool TrainingPairs::next(TextPair& pair) {
  while (reader_.next(pair)) {
    if (share_ > 0.0 && is_held_out(pair.source, share_)) {
      ++held_;
    } else if (share_ > 0.0 && held_targets_.contains(mix(kSameTarget, pair.target))) {
      ++related_;
    } else if (!is_clean(pair)) {
      ++unclean_;
    } else {
      return true;
    }
  }
  return false;
}

void TrainingPairs::rewind() {
  reader_.rewind();
  held_ = related_ = unclean_ = 0;
}

std::string TrainingPairs::fingerprint() const {
  const std::string common = fmt::format("{} {}", reader_.fingerprint(), share_);
  return length_ratio_ == 0.0 && most_words_ == 0 ? common
                                                  : fmt::format("{} {} {}", common, length_ratio_, most_words_);
}

std::string TrainingPairs::remarks() const {
  std::string text;
  const auto add = [&](std::string_view part) { text += fmt::format("{}{}", text.empty() ? "" : "; ", part); };
  if (held_ > 0) {
    add(fmt::format("{} pairs held out for validation, {} more left out because their targets are held out", held_,
                    related_));
  }
  if (unclean_ > 0) {
    add(fmt::format("{} pairs left out by their words (data.max_length_ratio = {}, data.max_words = {})", unclean_,
                    length_ratio_, most_words_));
  }
  if (reader_.skipped() > 0) {
    add(fmt::format("{} of {} rows left out, the first: {}", reader_.skipped(), reader_.rows(),
                    reader_.first_complaint()));
  }
  return text;
}

std::vector<TextPair> validation_pairs(const config::DataOptions& options) {
  const double share = held_share(options);
  if (share == 0.0) {
    return read_pairs({.source = options.validation, .target = options.validation_target}, options);
  }
  PairReader reader({.source = options.train, .target = options.train_target}, options);
  std::vector<TextPair> held;
  for (TextPair pair; reader.next(pair);) {
    if (is_held_out(pair.source, share)) {
      held.push_back(pair);
    }
  }
  if (held.empty()) {
    user_error("data.validation_fraction: must be large enough to hold out a pair, got {} of {} pairs", share,
               reader.rows() - reader.skipped());
  }
  std::ranges::stable_sort(
      held, [](const TextPair& a, const TextPair& b) { return mix(kHeldOrder, a.source) < mix(kHeldOrder, b.source); });
  return held;
}

namespace {

// Returns the length of the longer side of a pair, including the end token.
std::int64_t padded_length(const PairFile& file, std::int64_t pair) {
  return std::max(file.source_length(pair), file.target_length(pair)) + 1;
}

}  // namespace

PairBatches::PairBatches(const PairFile& file, const PairBatchOptions& options)
    : EpochStream("sentence pairs"), seed_(options.seed) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(file.size()));
  starts_.assign(static_cast<std::size_t>(options.longest + 2), 0);
  for (std::int64_t pair = 0; pair < file.size(); ++pair) {
    const std::int64_t length = padded_length(file, pair);
    lengths[static_cast<std::size_t>(pair)] = length;
    if (length > options.longest) {
      ++too_long_;
    } else {
      ++starts_[static_cast<std::size_t>(length + 1)];
    }
  }
  for (std::size_t length = 1; length < starts_.size(); ++length) {
    starts_[length] += starts_[length - 1];
  }
  order_.resize(static_cast<std::size_t>(starts_.back()));
  std::vector<std::int64_t> filled = starts_;
  for (std::int64_t pair = 0; pair < file.size(); ++pair) {
    if (const std::int64_t length = lengths[static_cast<std::size_t>(pair)]; length <= options.longest) {
      order_[static_cast<std::size_t>(filled[static_cast<std::size_t>(length)]++)] = pair;
    }
  }
  const std::int64_t usable = std::ssize(order_) / options.multiple * options.multiple;
  const auto length_at = [&](std::int64_t place) {
    return lengths[static_cast<std::size_t>(order_[static_cast<std::size_t>(place)])];
  };
  const BatchLimits limits{.rows = options.rows, .tokens = options.tokens, .multiple = options.multiple};
  for (std::int64_t begin = 0, end = 0; begin < usable; begin = end) {
    cuts_.push_back(begin);
    end = batch_end(begin, usable, limits, length_at);
  }
  cuts_.push_back(usable);
  set_per_epoch(std::ssize(cuts_) - 1);
  if (per_epoch() < 1) {
    user_error("{}: must hold at least {} pairs of up to {} tokens a side (model.context_length), got {}",
               file.identity(), options.multiple, options.longest - 1, order_.size());
  }
}

std::vector<std::int64_t> PairBatches::next() {
  const DataPosition position = advance();
  const std::uint64_t epoch = mix(seed_, static_cast<std::uint64_t>(position.epoch));
  const Shuffle batches(static_cast<std::uint64_t>(per_epoch()), mix(epoch, std::uint64_t{0}));
  const auto batch = static_cast<std::size_t>(batches(static_cast<std::uint64_t>(position.step)));
  std::vector<std::int64_t> pairs;
  for (std::int64_t place = cuts_[batch]; place < cuts_[batch + 1]; ++place) {
    // The length of the pairs at this position, and the pair of that length that this epoch's shuffle puts here.
    const auto after = std::ranges::upper_bound(starts_, place);
    const std::int64_t first = *(after - 1), count = *after - first;
    const auto length = static_cast<std::uint64_t>(after - starts_.begin());
    const Shuffle same(static_cast<std::uint64_t>(count), mix(epoch, length));
    const auto chosen = static_cast<std::int64_t>(same(static_cast<std::uint64_t>(place - first)));
    pairs.push_back(order_[static_cast<std::size_t>(first + chosen)]);
  }
  return pairs;
}

}  // namespace headroom::data
