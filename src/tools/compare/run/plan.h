// What a comparison trains, and in which folders: decided here, before anything is trained.
//
//   out/NAME                        the model's first seed
//   out/NAME/seed_2                 its other seeds
//   out/NAME/KEY=VALUE              the first seed with tuned values ("KEY=VALUE,KEY=VALUE", sorted by key)
//   out/NAME/KEY=VALUE/seed_2       other seeds with them
//   out/KEY=VALUE                   a sweep's runs, and so on
//
// So a comparison with more seeds or values finds what an earlier one has trained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/compare/compare.h"

namespace headroom::compare {

inline constexpr std::int64_t kMostSeeds = 10000;

// One training, planned.
struct PlannedRun {
  Values values;          // of tuned keys
  config::Config config;  // with them and with its seed
  std::filesystem::path folder;
};

struct PlannedModel {
  std::string name;
  std::vector<PlannedRun> choices;  // first seed: a run for each combination of tuned values, or a single one
  std::string family = {};          // of which it is one size; empty: of none
};

struct Plan {
  std::vector<PlannedModel> models;
  std::vector<Variation> variations;  // keys that are tuned or varied, with their values as configs spell them
  std::int64_t seeds = 1;
  bool may_diverge = false;         // any run may, not only those that try tuned values
  const char* command = "compare";  // what messages begin with
};

// Throw UserError for keys and values that no config can have, and for seeds out of range.
Plan plan_comparison(const CompareRequest& request);
Plan plan_sweep(const SweepRequest& request);  // a model for each combination

// Throws UserError where a run's seed would be none that train.seed can be.
void check_seeds(const Plan& plan, const std::string& command);

// The run of the seed `index` places after `first`'s: `first` itself for index 0.
PlannedRun with_seed(const PlannedRun& first, std::int64_t index);

// Every combination of the variations' values, the last one changing fastest; one empty combination of none.
std::vector<Values> combinations(const std::vector<Variation>& variations);

// A key's last part where no other of `keys` ends alike: "learning_rate".
std::string short_key(const std::string& key, const std::vector<std::string>& keys);

std::vector<std::string> keys_of(const std::vector<Variation>& variations);

// "learning_rate 0.001, n_heads 2".
std::string describe(const Values& values);

// "learning_rate=0.001,...": a folder's name that tells any values from others.
std::string folder_name(Values values);

}  // namespace headroom::compare
