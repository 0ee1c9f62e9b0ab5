// The plan of a comparison: which runs are trained, in which folders. It is complete before anything is trained.
//
//   out/NAME                        first seed of a model
//   out/NAME/seed_2                 its other seeds
//   out/NAME/KEY=VALUE              first seed with tuned values ("KEY=VALUE,KEY=VALUE", sorted by key); if several
//                                   seeds are compared, it only selects the values
//   out/NAME/KEY=VALUE/seed_2       its other seeds
//   out/KEY=VALUE                   a run of a sweep; other seeds as above
//
// A comparison with more seeds or values therefore finds the runs of an earlier one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/compare/request.h"

namespace headroom::compare {

inline constexpr std::int64_t kMostSeeds = 10000;
inline constexpr std::int64_t kMostSeed = std::int64_t{1} << 53;  // the maximum of train.seed

struct PlannedRun {
  Values values;          // tuned keys and their values
  config::Config config;  // includes these values and the run's seed
  std::filesystem::path folder;
};

struct PlannedModel {
  std::string name;
  std::vector<PlannedRun> choices;  // first seed: one run per combination of tuned values, or a single run
  std::string family = {};          // family of model sizes; empty: none
};

struct Plan {
  std::vector<PlannedModel> models;
  std::vector<Variation> variations;  // tuned or varied keys with their values, formatted as in configs
  std::int64_t seeds = 1;             // compared runs of each model
  bool tuned_apart = false;           // the first seed selects the tuned values and is not compared
  bool may_diverge = false;           // all runs may diverge, not only tuning runs
  const char* command = "compare";    // prefix of messages

  // The indices (with_seed()) of the compared runs: [first_index(), end_index()).
  std::int64_t first_index() const { return tuned_apart ? 1 : 0; }
  std::int64_t end_index() const { return first_index() + seeds; }
};

// Throw UserError for invalid keys or values and for seeds out of range.
Plan plan_comparison(const CompareRequest& request);
Plan plan_sweep(const CompareRequest& request);  // one model per combination

// Measures the first steps of each model and shortens the training of all by the same factor, so that the comparison
// and `further`, which keeps its steps, take about `seconds` on this machine, with at least `least` steps of the
// longest model. Logs the steps and the expected time. A comparison that has begun keeps its steps. Throws UserError if
// one step of every run takes longer.
void set_steps_within(double seconds, CompareRequest& request, const CompareRequest* further = nullptr,
                      std::int64_t least = 0);

// Throws UserError if the last seed of a run exceeds the maximum of train.seed.
void check_seeds(const Plan& plan);

// Returns the run with seed first.seed + index; `first` itself for index 0.
PlannedRun with_seed(const PlannedRun& first, std::int64_t index);

// Returns every combination of the values, with the last key changing fastest. Without variations, returns one empty
// combination.
std::vector<Values> combinations(const std::vector<Variation>& variations);

// Returns the last component of a dotted key, or the whole key if another of `keys` ends in the same component.
std::string short_key(const std::string& key, const std::vector<std::string>& keys);

std::vector<std::string> keys_of(const std::vector<Variation>& variations);

// Returns "learning_rate 0.001, n_heads 2".
std::string describe(const Values& values);

// Returns the text with characters that a shell or a file system treats specially replaced by "_".
std::string plain_name(std::string text);

}  // namespace headroom::compare
