// A stage's trainings: how long each is, in which folder, and what they decide.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "advise.h"
#include "ledger.h"
#include "tools/compare/run/runs.h"

namespace headroom::compare {

// Of a training that says something.
inline constexpr std::int64_t kFewestSteps = 10;

// The training and the validation text in a config's tokens, and the bytes of the first.
struct TextSize {
  double bytes = 0.0;
  std::int64_t training = 0, validation = 0;
};
// Makes the tokens first where need be. Throws what data::prepare_data() throws.
TextSize text_size(const config::Config& config, const std::filesystem::path& cache);

class Trials {
 public:
  struct Options {
    std::filesystem::path out, cache;
    double unit = 0.0;                 // seconds of a training in a first round
    double units = 0.0;                // of that, all stages take
    double measuring = 0.0;            // seconds for each speed that is not known yet
    double validation_fraction = 1.0;  // of the validation text that trials are measured on, its beginning
  };
  Trials(Ledger& ledger, Runs& runs, Options options) : ledger_(ledger), runs_(runs), options_(std::move(options)) {}

  // Trains the stage's arms, of which there are at least two, round by round, and sets what it found: `taken`, `open`,
  // the arms' rounds. `last_preferred`: of two that are equal the later one. Throws InterruptedError.
  void carry_out(Stage& stage, bool last_preferred);

  // Seconds of a training of the fewest steps that say something.
  double least_unit(Arm arm);
  // A config that is trained for a while: with all that follows from how many steps there are.
  static void set_steps(config::Config& config, std::int64_t steps);

 private:
  std::int64_t validation_tokens(const Arm& arm);
  double overhead(const Arm& arm);  // seconds of a training besides its steps
  void measure(Arm& arm);
  void train(const Stage& stage, Arm& arm, std::int64_t seed_index);
  void settle(Stage& stage, std::vector<std::size_t> finalists, bool last_preferred);
  const TextSize& text_of(const config::Config& config);

  Ledger& ledger_;
  Runs& runs_;
  Options options_;
  std::map<std::int64_t, TextSize> texts_;  // by size of the vocabulary
  double done_ = 0.0;                       // units
};

}  // namespace headroom::compare
