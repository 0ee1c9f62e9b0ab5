// Successive halving, apart from what is tried: how many go on, for how long, and which.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace headroom::compare {

inline constexpr std::size_t kFinalists = 2;
inline constexpr std::int64_t kSeedsOfClose = 3;  // trainings of each finalist where the two are close

// How many are in each round: the better half, rounded up, goes on until two are left. None for fewer than two.
std::vector<std::size_t> round_sizes(std::size_t arms);

// What all rounds and the seeds of the finalists take, in units of a first round's training of one arm; each round is
// twice as long as the one before.
double halving_units(std::size_t arms);

// The places of the `keep` best scores, lower ones being better, in ascending order; of equal scores the first. A score
// that is not finite is worse than any that is.
std::vector<std::size_t> survivors(const std::vector<double>& scores, std::size_t keep);

// Whether two scores are so close that another seed may turn them round: within one percent.
bool are_close(double one, double other);

struct Verdict {
  bool second = false;  // whether the second is taken
  bool open = false;    // neither is shown to be better
};
// Of two finalists, whose scores are of the same seeds each. The first is the one to be preferred where trials leave it
// open: with several seeds the second must be better beyond chance (95% interval of the paired difference).
Verdict decide(const std::vector<double>& first, const std::vector<double>& second);

}  // namespace headroom::compare
