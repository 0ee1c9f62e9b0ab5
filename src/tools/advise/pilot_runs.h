// Pilot runs: short training runs of a stage's candidates, compared by successive halving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "advise.h"
#include "headroom/config/config.h"
#include "tools/compare/run/execution.h"
#include "training/train/loop/train.h"

namespace headroom::advise {

// The request, the measured speeds and the time spent, stored in out/advice.json. The lengths of pilot runs are derived
// from these, so a repeated request has the same pilot runs.
inline constexpr const char* kPilotFolder = "trials";  // in the request's `out`

class Budget {
 public:
  // Resumes from request.out/advice.json if it exists. Throws UserError if that file is invalid or belongs to another
  // request; before the first pilot run, only the config must be the same. `asked` is the loaded config of the
  // request.
  Budget(const AdviseRequest& request, const config::Config& asked);

  // Returns the config's training speed, which is measured for about `seconds` unless it is already stored. Throws
  // UserError for unusable data or too little memory, InterruptedError on Ctrl-C.
  train::StepTime measure(const config::Config& config, double seconds);
  void spend(double seconds);
  double spent() const { return spent_; }

 private:
  void read();
  void write() const;

  std::filesystem::path file_, cache_;
  std::function<train::StepTime(const config::Config&)> measure_;  // replaces timing steps, if set
  Json request_;
  double spent_ = 0.0;
  std::map<std::string, train::StepTime> measured_;  // by a hash of the keys that the speed depends on
};

inline constexpr std::size_t kFinalists = 2;
inline constexpr std::int64_t kSeedsOfClose = 3;  // seeds per finalist if the two scores are close
inline constexpr std::int64_t kFewestSteps = 10;  // minimum length of a pilot run

// Returns the number of candidates in each round. The better half, rounded up, advances until two are left. Empty for
// fewer than two candidates.
std::vector<std::size_t> round_sizes(std::size_t candidates);

// Returns the time of all rounds, including the finalists' extra seeds, relative to one first-round pilot run. Each
// round is twice as long as the previous one.
double halving_units(std::size_t candidates);

// The indices of the `keep` lowest scores, in ascending order; ties go to the first. Scores that are not finite come
// last.
std::vector<std::size_t> survivors(const std::vector<double>& scores, std::size_t keep);

// Whether two scores are within one percent, so that another seed may reverse their order.
bool are_close(double one, double other);

struct Verdict {
  bool second = false;  // the second finalist wins
  bool open = false;    // the scores do not separate them
};
// Decides between two finalists whose scores have the same seeds. The first is the default; with several seeds the
// second wins only if the 95% interval of the paired difference shows that it is better.
Verdict decide(const std::vector<double>& first, const std::vector<double>& second);

// The data and its number of training and validation tokens with the config's tokenizer. Prepares the data if
// necessary; throws what tasks::Task::open() throws.
struct DataSize {
  std::int64_t training = 0;  // the maximum of std::int64_t if training rows are generated without end
  std::int64_t validation = 0;
  train::RunData data = {};
};
DataSize data_size(const config::Config& config, const std::filesystem::path& cache);

inline constexpr double kForwardShare = 1.0 / 3.0;  // time of a forward pass, as a share of a training step's
inline constexpr double kWarmupShare = 0.1;         // of the steps, for a config without warm-up

class PilotRuns {
 public:
  struct Options {
    std::filesystem::path out, cache;
    double unit = 0.0;                 // seconds of a first-round pilot run
    double units = 0.0;                // total of all stages
    double measuring = 0.0;            // seconds per speed measurement
    double validation_fraction = 1.0;  // share of the validation data that scores pilot runs
  };
  PilotRuns(Budget& budget, compare::Runs& runs, Options options)
      : budget_(budget), runs_(runs), options_(std::move(options)) {}

  // Trains the stage's candidates, at least two, round by round, and sets `taken`, `open` and the candidates' rounds.
  // If the finalists are equal, takes the later one if `last_preferred`, else the earlier one. Throws InterruptedError.
  void run(Stage& stage, bool last_preferred);

 private:
  std::int64_t validation_tokens(const Candidate& candidate);
  double overhead(const Candidate& candidate);  // seconds of a pilot run apart from its steps
  void measure(Candidate& candidate);
  void train(const Stage& stage, Candidate& candidate, std::int64_t seed_index);
  void settle(Stage& stage, std::vector<std::size_t> finalists, bool last_preferred);
  const DataSize& data_of(const config::Config& config);

  Budget& budget_;
  compare::Runs& runs_;
  Options options_;
  std::map<std::int64_t, DataSize> data_;  // keyed by vocabulary size
  double done_ = 0.0;                      // units finished so far
};

}  // namespace headroom::advise
