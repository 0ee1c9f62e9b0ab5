// The plan of a comparison: which runs are trained, in which folders. It is complete before anything is trained.
//
//   out/NAME                        first seed of a model
//   out/NAME/seed_2                 its other seeds
//   out/NAME/KEY=VALUE              first seed with tuned values ("KEY=VALUE,KEY=VALUE", sorted by key)
//   out/NAME/KEY=VALUE/seed_2       its other seeds
//   out/KEY=VALUE                   a run of a sweep; other seeds as above
//
// A comparison with more seeds or values therefore finds the runs of an earlier one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/compare/compare.h"

namespace headroom::compare {

inline constexpr std::int64_t kMostSeeds = 10000;

struct PlannedRun {
  Values values;          // of the tuned keys
  config::Config config;  // with these values and the run's seed
  std::filesystem::path folder;
};

struct PlannedModel {
  std::string name;
  std::vector<PlannedRun> choices;  // first seed: one run per combination of tuned values, or a single run
  std::string family = {};          // of model sizes; empty: none
};

struct Plan {
  std::vector<PlannedModel> models;
  std::vector<Variation> variations;  // tuned or varied keys with their values, spelled as configs spell them
  std::int64_t seeds = 1;
  bool may_diverge = false;         // any run may diverge, not only those for tuning
  const char* command = "compare";  // prefix of messages
};

// Throw UserError for invalid keys or values and for seeds out of range.
Plan plan_comparison(const CompareRequest& request);
Plan plan_sweep(const SweepRequest& request);  // one model per combination

// Throws UserError if the last seed of a run exceeds the maximum of train.seed.
void check_seeds(const Plan& plan);

// The run whose seed is `index` above that of `first`; `first` itself for index 0.
PlannedRun with_seed(const PlannedRun& first, std::int64_t index);

// Every combination of the values, the last key changing fastest; one empty combination without variations.
std::vector<Values> combinations(const std::vector<Variation>& variations);

// The last component of a dotted key, or the whole key if another of `keys` has the same last component.
std::string short_key(const std::string& key, const std::vector<std::string>& keys);

std::vector<std::string> keys_of(const std::vector<Variation>& variations);

// "learning_rate 0.001, n_heads 2"
std::string describe(const Values& values);

// "learning_rate=0.001,...": a folder name that is unique for the values.
std::string folder_name(Values values);

}  // namespace headroom::compare
