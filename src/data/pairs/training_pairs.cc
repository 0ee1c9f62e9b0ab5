#include "data/pairs/training_pairs.h"

#include <algorithm>

#include "headroom/core/error.h"
#include "headroom/core/random.h"

namespace headroom::data {

namespace {

constexpr std::uint64_t kHeldOut = 1, kSameTarget = 2, kHeldOrder = 3;  // names of hashes

double held_share(const config::DataOptions& options) {
  if (!options.validation.empty()) {
    return 0.0;
  }
  if (!(options.validation_share > 0.0)) {
    misuse("data.validation: must name files of sentence pairs when data.validation_share is 0");
  }
  return options.validation_share;
}

}  // namespace

bool is_held_out(const std::string& source, double share) {
  return static_cast<double>(mix(kHeldOut, source) >> 11) * 0x1.0p-53 < share;
}

TrainingPairs::TrainingPairs(const config::DataOptions& options)
    : reader_({.source = options.train, .target = options.train_target}, options), share_(held_share(options)) {
  if (share_ > 0.0) {
    for (TextPair pair; reader_.next(pair);) {
      if (is_held_out(pair.source, share_)) {
        held_targets_.insert(mix(kSameTarget, pair.target));
      }
    }
    rewind();
  }
}

bool TrainingPairs::next(TextPair& pair) {
  while (reader_.next(pair)) {
    if (share_ == 0.0) {
      return true;
    }
    if (is_held_out(pair.source, share_)) {
      ++held_;
    } else if (held_targets_.contains(mix(kSameTarget, pair.target))) {
      ++related_;
    } else {
      return true;
    }
  }
  return false;
}

void TrainingPairs::rewind() {
  reader_.rewind();
  held_ = related_ = 0;
}

std::string TrainingPairs::fingerprint() const {
  return fmt::format("{} {}", reader_.fingerprint(), share_);
}

std::string TrainingPairs::remarks() const {
  std::string text;
  const auto add = [&](std::string_view part) { text += fmt::format("{}{}", text.empty() ? "" : "; ", part); };
  if (held_ > 0) {
    add(fmt::format("{} pairs held out for validation, {} more left out because they have a target of these", held_,
                    related_));
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
    misuse("data.validation_share: must be large enough to hold out a pair, got {} of {} pairs", share,
           reader.rows() - reader.skipped());
  }
  std::stable_sort(held.begin(), held.end(), [](const TextPair& a, const TextPair& b) {
    return mix(kHeldOrder, a.source) < mix(kHeldOrder, b.source);
  });
  return held;
}

}  // namespace headroom::data
