// Is a change better? Trains a base and a changed config with paired seeds until the answer is clear.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/field.h"
#include "headroom/core/json.h"
#include "tools/compare/compare.h"
#include "tools/compare/statistics.h"

namespace headroom::trial {

// The statistical test of `headroom try`: is the mean of paired differences below zero? It is applied after every pair,
// so that a trial can stop early. docs/try.md states its error rates.
enum class Decision { keep, discard, undecided };

}  // namespace headroom::trial

namespace headroom::config {
template <>
inline constexpr EnumNames kEnumNames<trial::Decision> = {"keep", "discard", "undecided"};
}  // namespace headroom::config

namespace headroom::trial {

struct TestOptions {
  int pairs = 8;                  // maximum number of pairs, at least 2
  double false_keep_rate = 0.05;  // maximum probability of keeping a change that has no effect
};

// The one-sided significance level of Student's t-test after pair n of options.pairs; 0 for n = 1. Half of
// false_keep_rate is spent on the last pair, the other half in equal parts on the pairs before it, so that, by the
// union bound, all tests together keep a change that is no better with a probability of at most false_keep_rate.
double level_after(int n, const TestOptions& options);

// What n = differences.size() pairs show. `differences` are change minus base, negative where the change is better;
// `base_deviation` is the standard deviation of the base's figure over its seeds, NaN if unknown.
//   keep       the t-test rejects "no better" at level_after(n)
//   discard    the mean exceeds kHopeless base_deviation / n, or a difference is not finite
//   undecided  neither; another pair can follow if n < options.pairs
Decision decide(const std::vector<double>& differences, double base_deviation, const TestOptions& options);
inline constexpr double kHopeless = 0.5;

// The mean of the differences and the two-sided interval that belongs to the test after these pairs: it excludes zero
// from above if and only if decide() keeps the change. Low and high are infinite for a single pair.
compare::Interval interval(const std::vector<double>& differences, const TestOptions& options);

struct TrialRequest {
  compare::NamedConfig base, change;
  double budget = 1200.0;  // seconds of wall time for new runs
  TestOptions test;
  // The first seed of the change's runs; if not set, the base's first seed, so that both sides of a pair share the data
  // order and the initial values of common parameters.
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

// Returns one sentence with the decision and the difference, and a second one with the steps if train.seconds ended the
// runs.
std::string sentence_of(const Trial& trial, const TrialRequest& request);

// Returns a table of the pairs.
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
