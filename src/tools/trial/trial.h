// Is a change better? Trains a base and a changed config with paired seeds until the answer is clear.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/core/json.h"
#include "tools/compare/compare.h"
#include "tools/trial/sequential_test.h"

namespace headroom::trial {

struct TrialRequest {
  compare::NamedConfig base, change;
  double budget = 1200.0;  // seconds of wall time for new runs
  TestOptions test;
  // The first seed of the change's runs; not set: the base's, so that both sides of a pair share data order and the
  // initial values of the parameters that both have.
  std::optional<std::int64_t> change_seed;
  bool tune = false;          // first find each side's learning rate, with a separate seed
  std::filesystem::path out;  // runs/NAME-HASH/seed_N and trials.jsonl
  std::filesystem::path cache;
  std::string command;
  parallel::GlooGroup* group = &parallel::default_group();  // ranks that train each run together
};

// The runs of one seed.
struct Pair {
  std::int64_t base_seed = 0, change_seed = 0;
  double base = 0.0, change = 0.0;         // the figure; infinite if the run diverged
  std::string base_sha256, change_sha256;  // of the trained parameters
  std::int64_t base_steps = 0, change_steps = 0;
};

struct Trial {
  Decision decision = Decision::undecided;
  std::string base, change;  // names of the configs
  tasks::FigureKind figure;  // by which they are compared
  std::vector<Pair> pairs;
  compare::Interval difference;  // change minus base; with fewer than two pairs, the bounds are infinite
  double base_learning_rate = 0.0, change_learning_rate = 0.0;
  std::vector<std::string> changed;      // the keys in which the configs differ: "train.steps: 100 -> 200"
  std::int64_t trained = 0, reused = 0;  // runs
  std::string sentence;
  bool interrupted = false;
};

// Trains pairs of runs until decide() is certain, test.pairs are trained or the budget does not suffice for another
// run. The first three base runs come first, because differences are compared with their deviation. Runs are stored by
// the content of their config: no trial trains a config again that has been trained in `out`, and an interrupted trial
// resumes. Appends a line to out/trials.jsonl, unless the last one says the same. Throws UserError if the figures of
// the configs cannot be compared (task, tokenizer, validation or training data differ), if the base diverges, or if the
// budget is too short for a pair.
Trial run_trial(const TrialRequest& request);

// A trial in words, as a table and as JSON, and the file of trials (report.cc).

// Whether both sides of every pair trained to the same parameters and have the same figure.
bool has_no_effect(const Trial& trial);

// Returns one sentence with the decision and the difference, and another with the steps if train.seconds ended the
// runs.
std::string sentence_of(const Trial& trial, const TrialRequest& request);

// A table of the pairs.
std::string render_table(const Trial& trial);

// `decision`, `sentence`, `base`, `change`, `changed`, `figure`, `difference` (`mean`, `low`, `high`; null if unknown),
// `pairs`, `runs` (trained), `reused`, `learning_rates`.
Json to_json(const Trial& trial);

// Throws Error naming out/trials.jsonl if it cannot be opened for appending.
void require_appendable(const std::filesystem::path& out);

// Appends a line with the trial to out/trials.jsonl, unless the last line is of the same trial with the same pairs. A
// truncated last line, left by a killed program, is not joined with the new one. Throws Error naming the file.
void append_record(const Trial& trial, const TrialRequest& request);

}  // namespace headroom::trial
