// Effective speedup: how many times as long the first model of a comparison trains for the same loss as another model.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scaling.h"

namespace headroom::compare {

struct ComparedRun;

struct EffectiveSpeedups {
  enum class Basis {
    none,
    // A power law through several lengths of the first model gives its compute and, through its measured times, its
    // training time for the final loss of another model, as for families of sizes (scaling.h).
    lengths,
    // The learning curves give the training time of both models to the higher of their two last losses: of the model
    // that is behind, all of it, and of the other, the time at which its curve crosses that loss. The learning rate of
    // the model ahead has not decayed there, so it could have reached the loss sooner: ratios are too close to 1.
    curves,
  };
  // Of one run. Above 1: the first model needs more.
  struct Speedup {
    Saving time;
    std::optional<Saving> compute = {};  // only for `lengths`
  };

  Basis basis = Basis::none;
  std::vector<std::optional<Speedup>> of_runs = {};  // one per run; not set for the first model and if unknown
  std::vector<std::string> lengths = {};             // names of the first model's runs
  std::string reason = {};                           // a sentence; empty unless a speedup cannot be given
};

// `lengths` if the runs contain the first model with at least two amounts of training compute, which differ in
// train.steps, train.warmup_steps and train.learning_rate only; otherwise `curves`.
EffectiveSpeedups effective_speedups(const std::vector<ComparedRun>& runs);

// Returns sentences that give the speedups and how they were found; none for Basis::none.
Conclusion conclude_speedups(const std::vector<ComparedRun>& runs, const EffectiveSpeedups& speedups);

}  // namespace headroom::compare
