// Which pairs of data.train a run trains on.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>

#include "pairs.h"

namespace headroom::data {

class TrainingPairs {
 public:
  // Throws UserError when there is neither a validation file nor a share to hold out.
  explicit TrainingPairs(const config::DataOptions& options);

  bool next(TextPair& pair);
  void rewind();
  const PairReader& reader() const { return reader_; }
  std::string fingerprint() const;
  std::string remarks() const;  // of a whole pass: what was left out and why; empty: nothing was

 private:
  bool is_clean(const TextPair& pair) const;

  PairReader reader_;
  double share_;                                    // held out; 0: none
  std::unordered_set<std::uint64_t> held_targets_;  // hashes
  std::int64_t held_ = 0, related_ = 0;
  double length_ratio_;  // 0: any
  std::int64_t most_words_, cleaned_ = 0;
};

// Whether a pair of this source is held out for validation.
bool is_held_out(const std::string& source, double share);

}  // namespace headroom::data
