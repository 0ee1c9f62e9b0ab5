// Pilot runs: short trainings of a stage's candidates, compared by successive halving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "advise.h"
#include "budget.h"
#include "tools/compare/run/execution.h"

namespace headroom::advise {

inline constexpr std::size_t kFinalists = 2;
inline constexpr std::int64_t kSeedsOfClose = 3;  // seeds of each finalist if the two are close
inline constexpr std::int64_t kFewestSteps = 10;  // of a pilot run

// The number of candidates in each round: the better half, rounded up, goes on until two are left. Empty for fewer than
// two candidates.
std::vector<std::size_t> round_sizes(std::size_t candidates);

// The time of all rounds, including the finalists' extra seeds, relative to one pilot run of the first round. Each
// round is twice as long as the one before.
double halving_units(std::size_t candidates);

// The indices of the `keep` lowest scores, in ascending order; ties go to the first. Scores that are not finite come
// last.
std::vector<std::size_t> survivors(const std::vector<double>& scores, std::size_t keep);

// Whether two scores are within one percent, so that another seed may reverse their order.
bool are_close(double one, double other);

struct Verdict {
  bool second = false;  // the second is taken
  bool open = false;    // neither is shown to be better
};
// Decides between two finalists with scores of the same seeds. The first is preferred: with several seeds the second is
// taken only if the 95% interval of the paired difference shows it to be better.
Verdict decide(const std::vector<double>& first, const std::vector<double>& second);

// The length of the training and validation text in the config's tokens. Prepares the data if necessary; throws what
// data::prepare_data() throws.
struct TextSize {
  std::int64_t training = 0, validation = 0;
};
TextSize text_size(const config::Config& config, const std::filesystem::path& cache);

// Sets train.steps and the warm-up steps, which keep their share.
void set_steps(config::Config& config, std::int64_t steps);

class PilotRuns {
 public:
  struct Options {
    std::filesystem::path out, cache;
    double unit = 0.0;                 // seconds of a pilot run in a first round
    double units = 0.0;                // of all stages together
    double measuring = 0.0;            // seconds for each speed that has to be measured
    double validation_fraction = 1.0;  // share of the validation text, from its beginning, for the pilot runs' scores
  };
  PilotRuns(Budget& budget, compare::Runs& runs, Options options)
      : budget_(budget), runs_(runs), options_(std::move(options)) {}

  // Trains the stage's candidates, at least two, round by round, and sets `taken`, `open` and the candidates' rounds.
  // If the finalists are equal, takes the later one if `last_preferred`, else the earlier one. Throws InterruptedError.
  void run(Stage& stage, bool last_preferred);

  // Seconds of a pilot run of kFewestSteps.
  double shortest_run_seconds(Candidate candidate);

 private:
  std::int64_t validation_tokens(const Candidate& candidate);
  double overhead(const Candidate& candidate);  // seconds of a pilot run besides its steps
  void measure(Candidate& candidate);
  void train(const Stage& stage, Candidate& candidate, std::int64_t seed_index);
  void settle(Stage& stage, std::vector<std::size_t> finalists, bool last_preferred);
  const TextSize& text_of(const config::Config& config);

  Budget& budget_;
  compare::Runs& runs_;
  Options options_;
  std::map<std::int64_t, TextSize> texts_;  // by vocabulary size
  double done_ = 0.0;                       // units
};

}  // namespace headroom::advise
