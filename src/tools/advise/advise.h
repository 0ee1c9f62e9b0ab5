// What to train before the first run: tries models out within a tenth of a budget of time, and ends with a config for
// the rest of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"
#include "tools/compare/figures/result.h"

namespace headroom::compare {

// What a config may keep although another would suit the budget better.
inline constexpr const char* kKeepSize = "size";
inline constexpr const char* kKeepBatch = "batch";
inline constexpr const char* kKeepVocabulary = "vocabulary";

// How long training with a config takes on a machine.
struct Measured {
  double step_seconds = 0.0;   // of training: a quarter of some steps were faster (other programs only slow down)
  double start_seconds = 0.0;  // until the first step: opening the data, making the model
};

struct AdviseRequest {
  std::string config;                  // path of a TOML file, or a recipe's name
  std::vector<std::string> overrides;  // "key=value"
  double budget = 0.0;                 // seconds: trials and the run that is advised
  std::vector<std::string> variants;   // of the attention, at the same size: names of zoo recipes, recipes, TOML files
  bool heads = false;                  // whether numbers of heads and experts are tried, at the same size
  std::set<std::string> keep;          // of the above
  std::filesystem::path out, cache;
  std::string command;  // as it was typed, for the page
  // Replaces measuring on this machine, so that the lengths of trials are the same on every machine. If not set, some
  // steps are timed.
  std::function<Measured(const config::Config&)> measure;
};

// Of one length, a training with each seed.
struct Round {
  std::int64_t steps = 0;
  std::vector<TrainedRun> trained;  // in ascending order of seeds
  std::vector<double> scores;       // bits per byte of the validation text; NaN: diverged
};

// One of the values that are tried against each other.
struct Arm {
  std::string name;           // "0.004"
  config::Config config;      // with it
  double step_seconds = 0.0;  // measured beforehand
  std::int64_t parameters = 0;
  std::vector<Round> rounds;  // those that it was in
  double score() const;       // of its last round, the mean over its seeds; NaN where it has none
};

// A question that trainings answer by successive halving: all arms are trained for a while, the better half for twice
// as long, and so on.
struct Stage {
  std::string name, title;         // "learning_rate", "Learning rate"
  std::vector<Arm> arms;           // in their natural order
  std::size_t own = 0, taken = 0;  // of the arms: what the config has by itself, and what advice is to take
  bool open = false;               // several seeds left it open which of the last two is better
  std::string sentence;            // what came out
};

struct Advice {
  std::string source;                // the config that was asked about
  double budget = 0.0, spent = 0.0;  // seconds; spent: on measuring and trials
  config::Config config;             // advised
  std::filesystem::path file;        // that holds it
  std::int64_t parameters = 0;
  double tokens_per_second = 0.0;       // of its training
  double tokens = 0.0, readings = 0.0;  // that it is trained on; how often it reads the training text
  bool dropout_added = false;           // the config had none, and the text is read too often for that
  std::string machine;
  std::string command;
  std::vector<Stage> stages;
  std::vector<std::string> sentences;  // rate, size, batch, what each stage found, what to do with it
  std::filesystem::path report;
};

// Measures, tries out, writes out/advised.toml, out/advice.json and out/report.html. What was measured and trained
// before in `out` for the same request is kept, so that an interrupted request goes on, and a repeated one gives the
// same. Throws UserError for configs of other tasks than language modelling, for a budget below what the smallest
// trials need, and for a folder that holds something else; InterruptedError on Ctrl-C.
Advice advise(const AdviseRequest& request);

// Aligned plain text: a line an arm.
std::string render_table(const Advice& advice);
// Self-contained HTML without scripts.
std::string render_report(const Advice& advice);
// `config` (TOML text of the whole), `file`, `runs` (every training: the keys of `train`, name, stage, arm, round,
// seed, bits_per_byte, taken), `budget_seconds`, `tokens`, `tokens_per_second`, `sentences`, `report`.
Json to_json(const Advice& advice);

}  // namespace headroom::compare
