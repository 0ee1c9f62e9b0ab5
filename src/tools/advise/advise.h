// Recommends what to train in a given time: tries models within a tenth of the budget and returns a config that fits
// the rest.
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
#include "training/train/loop/step_time.h"

namespace headroom::advise {

// Settings that the advice must not change (--keep).
inline constexpr const char* kKeepSize = "size";
inline constexpr const char* kKeepBatch = "batch";
inline constexpr const char* kKeepVocabulary = "vocabulary";

struct AdviseRequest {
  std::string config;                  // path of a TOML file, or name of a recipe
  std::vector<std::string> overrides;  // "key=value"
  double budget = 0.0;                 // seconds, for pilot runs and the advised run
  std::vector<std::string> variants;   // attention variants to try at the same size: zoo recipes, recipes, TOML files
  bool heads = false;                  // try other numbers of heads and experts at the same size
  std::set<std::string> keep;          // kKeepSize, kKeepBatch
  std::filesystem::path out, cache;
  std::string command;  // the command line, shown on the page
  // Optional replacement for timing steps on this machine; makes the lengths of pilot runs reproducible.
  std::function<train::StepTime(const config::Config&)> measure;
};

// The validation figure that pilot runs are compared by; lower is better.
struct Measure {
  std::string figure = "bits_per_byte";  // tasks::FigureKind::name
  std::string unit = "bits per byte";
  std::string data = "validation text";  // what it is measured on
};

// All seeds of one candidate, trained for the same number of steps.
struct Round {
  std::int64_t steps = 0;
  std::vector<compare::TrainedRun> trained;  // ascending by seed
  std::vector<double> scores;                // by the Measure; NaN: diverged
};

// One of the values that a stage compares.
struct Candidate {
  std::string name;           // "0.004"
  config::Config config;      // with this value
  double step_seconds = 0.0;  // measured before the pilot runs
  std::int64_t parameters = 0;
  std::vector<Round> rounds;  // the rounds it took part in
  double score() const;       // mean over the seeds of its last round; NaN if it has none
};

// One decision, made by successive halving: all candidates are trained briefly, then the better half for twice as long,
// and so on.
struct Stage {
  std::string name, title;  // "learning_rate", "Learning rate"
  Measure measure = {};
  std::vector<Candidate> candidates;  // in their natural order
  std::size_t own = 0, taken = 0;     // indices: the config's own value, and the advised one
  bool open = false;                  // repeating with several seeds did not separate the two finalists
  std::string sentence;               // the result
};

struct Advice {
  std::string source;                // the config of the request
  double budget = 0.0, spent = 0.0;  // seconds; spent: on measurements and pilot runs
  config::Config config;             // the advised one
  std::filesystem::path file;        // contains the advised config
  std::int64_t parameters = 0;
  double tokens_per_second = 0.0;     // of the advised training
  double tokens = 0.0, epochs = 0.0;  // of the advised training
  bool dropout_added = false;         // because the text is repeated often and the config has no dropout
  std::string machine;
  std::string command;
  Measure measure = {};
  std::vector<Stage> stages;
  std::vector<std::string> sentences;  // speed, size, batch, epochs, the result of each stage, the command to train
  std::filesystem::path report;
};

// Measures, trains pilot runs, and writes out/advised.toml, out/advice.json and out/report.html. Reuses measurements
// and pilot runs of the same request in `out`, so an interrupted request resumes and a repeated one gives the same
// result. Throws UserError if the config does not train a language model on text or on data.synthetic, if the budget is
// too small for the shortest pilot runs, or if the folder holds something else; InterruptedError on Ctrl-C.
Advice advise(const AdviseRequest& request);

// Returns aligned plain text with one line per candidate.
std::string render_table(const Advice& advice);
// Returns self-contained HTML without scripts.
std::string render_report(const Advice& advice);
// Keys: `config` (complete, as TOML text), `file`, `runs` (for every pilot run, the keys of `train` and name, stage,
// arm (the candidate), round, seed, the Measure's figure, taken), `budget_seconds`, `tokens`, `tokens_per_second`,
// `sentences`, `report`.
Json to_json(const Advice& advice);

}  // namespace headroom::advise
