// Trains several models under the same budget and says, in a table, a page and a sentence, how they compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "headroom/tasks/task.h"
#include "headroom/train/train.h"

namespace headroom::analysis {

struct NamedConfig {
  std::string name;  // also its run folder's name: no '/', unique
  config::Config config;
};

// config::load_config for each, named by file ("recipes/demo/dense_h8.toml" and "demo/dense_h8" are "dense_h8";
// files of one name in several folders keep what tells them apart: "a.dense", "b.dense").
std::vector<NamedConfig> load_configs(const std::vector<std::string>& paths_or_recipes,
                                      const std::vector<std::string>& overrides = {});

// A dotted key and values for it, as in a config: "train.learning_rate" and {"3e-4", "1e-3"}.
struct Variation {
  std::string key;
  std::vector<std::string> values;
};
// "train.learning_rate=3e-4,1e-3"; commas within brackets and quotes are part of a value. `option` names it in
// messages.
Variation parse_variation(std::string_view text, std::string_view option);

// Keys with the value that a run has of each, in the spelling of config::flatten.
using Values = std::vector<std::pair<std::string, std::string>>;

// One training of a model.
struct TrainedRun {
  std::int64_t seed = 1;
  train::TrainResult result;
  std::string machine;   // what it was measured on and with
  std::string diverged;  // not empty: how the loss or the gradient stopped being finite, and `result` is empty
};

// A combination of tuned values and the headline figure that the first seed reached with it; NaN: diverged.
struct Tried {
  Values values;
  double headline = 0.0;
  bool chosen = false;
};

// One model's line of a comparison.
struct ComparedRun {
  std::string name;
  config::Config config;                                  // of the first seed
  std::filesystem::path folder;                           // of the first seed
  Values values;                                          // of the keys that were tuned
  std::vector<TrainedRun> trained;                        // at least one; a seed each, in ascending order
  std::vector<Tried> tried;                               // empty: nothing was tuned
  std::int64_t attention_macs = 0, attention_memory = 0;  // paper accounting, a layer and sequence
  Json executed;                                          // MACs really executed, as in cost::cost_json
  std::vector<std::string> samples;                       // the continuation of each prompt, by the first seed

  const tasks::Task& task() const;
  const train::TrainResult& result() const { return trained.front().result; }  // the first seed's
  // A figure of the last validation, a value a seed, NaN where there is none.
  std::vector<double> over_seeds(const std::string& figure) const;
  double headline() const;                                     // the mean over the seeds of the task's headline figure
  double mean_of(double train::TrainResult::*measured) const;  // over the seeds
  double peak_memory_bytes() const;                            // the highest of the seeds
};

// Words for what came out, given the runs.
using Conclude = std::function<std::string(const std::vector<ComparedRun>&)>;

struct CompareRequest {
  std::vector<NamedConfig> configs;  // the others are measured against the first
  std::int64_t seeds = 1;            // trainings of each: with train.seed, train.seed + 1, ...
  std::vector<Variation> tune;       // each model takes its own best of all combinations of these
  std::filesystem::path out;         // for the runs, as plan.h lays them out, and out/report.html
  std::filesystem::path cache;       // prepared data
  std::vector<std::string> prompts;  // of the sample texts; none: the beginning of the validation data
  std::int64_t sample_tokens = 120;
  double sample_temperature = 0.8;
  std::uint64_t sample_seed = 1;
  std::string title = "Comparison";
  std::string about;    // sentences on what is compared, shown on the page
  std::string command;  // how this comparison was asked for, shown on the page
  Conclude conclude;    // unset: analysis::conclude
};

struct CompareResult {
  std::string title, about, command;
  std::vector<ComparedRun> runs;
  std::int64_t seeds = 1;         // that each model is trained with
  std::vector<std::string> keys;  // that were tuned
  std::vector<std::string> prompts;
  std::string sampling;            // how the sample texts were drawn
  std::vector<std::string> notes;  // sentences: in what the runs were not treated alike
  std::string conclusion;
  std::filesystem::path report;
  bool interrupted = false;  // Ctrl-C: the same request goes on where it was; no report yet
};

// First every model is trained with its first seed, with each combination of tuned values, and keeps the one whose last
// validation has the best headline figure; then all models with the second seed, and so on. Of one seed, all models see
// the data in the same order. Runs that have finished in `out` are kept (result.json in their folder), an unfinished
// one is resumed from its newest checkpoint; more seeds or values use what is there. Throws MisuseError for no or
// ill-named configs, for keys and values that cannot be tuned, for runs that cannot be compared (their figures are of
// different tasks, texts or tokens), and for a folder that holds a run of another configuration; Error when a loss
// stops being finite, unless it is that of a tuned value, which is then not chosen.
CompareResult compare(const CompareRequest& request);

// What keeps figures from being compared is a MisuseError; other differences of data, budget and training are
// returned as sentences, apart from those of the keys in `expected`.
std::vector<std::string> check_fairness(const std::vector<NamedConfig>& configs,
                                        const std::set<std::string>& expected = {});

// One sentence: which run has the best headline figure, by how much, and at what cost compared with the first run
// (or, if the first is best, the next best compared with it). With several seeds a difference is only claimed where its
// 95% interval excludes zero.
std::string conclude(const std::vector<ComparedRun>& runs);

// Aligned plain text, a line a run, relative figures against the first run's.
std::string render_table(const std::vector<ComparedRun>& runs);

// The page: self-contained HTML without scripts.
std::string render_report(const CompareResult& result);

// The keys of `train`, and the task's figures.
Json to_json(const train::TrainResult& result, const tasks::Task& task);

// `runs`: for each model name, the keys of `train` and the task's headline figure (of the first seed), `seeds` (each
// seed with the keys of `train`), `<figure>_mean` and `<figure>_std` over the seeds, `difference` (of the validation
// loss against the first model, paired by seed: mean, low, high; null for the first and for one seed),
// `<headline>_difference`, `values` and `tried` (of tuned keys), attention_macs, attention_memory, executed, samples;
// then `notes`, `conclusion`, `report`.
Json to_json(const CompareResult& result);

}  // namespace headroom::analysis
