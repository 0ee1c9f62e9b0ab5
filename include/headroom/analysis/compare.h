// Trains several models under the same budget and says, in a table, a page and a sentence, how they compare.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
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

// One model's line of a comparison.
struct ComparedRun {
  std::string name;
  config::Config config;
  train::TrainResult result;
  std::int64_t attention_macs = 0, attention_memory = 0;  // paper accounting, a layer and sequence
  Json executed;                                          // MACs really executed, as in cost::cost_json
  std::string machine;                                    // what it was measured on and with
  std::vector<std::string> samples;                       // the continuation of each prompt
  const tasks::Task& task() const;
  double headline() const;  // the task's headline figure of the last validation; NaN before any
};

// Words for what came out, given the runs.
using Conclude = std::function<std::string(const std::vector<ComparedRun>&)>;

struct CompareRequest {
  std::vector<NamedConfig> configs;  // the others are measured against the first
  std::filesystem::path out;         // run <name> in out/<name>, the page in out/report.html
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
  std::vector<std::string> prompts;
  std::string sampling;            // how the sample texts were drawn
  std::vector<std::string> notes;  // sentences: in what the runs were not treated alike
  std::string conclusion;
  std::filesystem::path report;
  bool interrupted = false;  // Ctrl-C: the same request goes on where it was; no report yet
};

// Runs that have finished in `out` are kept (out/<name>/result.json), an unfinished one is resumed from its newest
// checkpoint. Throws MisuseError for no or ill-named configs, for runs that cannot be compared (their figures are of
// different tasks, texts or tokens), and for a folder that holds a run of another configuration.
CompareResult compare(const CompareRequest& request);

// What keeps figures from being compared is a MisuseError; other differences of data, budget and training are
// returned as sentences.
std::vector<std::string> check_fairness(const std::vector<NamedConfig>& configs);

// One sentence: which run has the best headline figure, by how much, and at what cost compared with the first run
// (or, if the first is best, the next best compared with it).
std::string conclude(const std::vector<ComparedRun>& runs);

// Aligned plain text, a line a run, relative figures against the first run's.
std::string render_table(const std::vector<ComparedRun>& runs);

// The page: self-contained HTML without scripts.
std::string render_report(const CompareResult& result);

// The keys of `train`, and the task's figures.
Json to_json(const train::TrainResult& result, const tasks::Task& task);

// `runs` (the keys of `train`, with name, attention_macs, attention_memory, executed, the task's headline
// figure, samples), `notes`, `conclusion`, `report`.
Json to_json(const CompareResult& result);

}  // namespace headroom::analysis
