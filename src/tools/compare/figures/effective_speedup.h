// Effective speedup: how many times as long the first model of a comparison trains for the same loss as another model,
// and on how many times the tokens. All times are shares of a run's training time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scaling.h"

namespace headroom::compare {

struct ComparedRun;

struct EffectiveSpeedups {
  // Of one run. Above 1: the first model needs more.
  struct Speedup {
    Saving tokens, time;
  };
  std::vector<std::optional<Speedup>> of_runs = {};  // one per run, or none; not set for the first model and if unknown
  std::string reason = {};                           // a sentence; empty unless a speedup cannot be given
};

// The learning curves give the steps of both models to the higher of their two last losses: of the model that is
// behind, all of them, and of the other, those at which its curve crosses that loss. The learning rate of the model
// ahead has not decayed there, so it could have reached the loss sooner: ratios are too close to 1.
EffectiveSpeedups effective_speedups(const std::vector<ComparedRun>& runs);

// Returns sentences that give the speedups and how they were found; none if there are none.
Conclusion conclude_speedups(const std::vector<ComparedRun>& runs, const EffectiveSpeedups& speedups);

}  // namespace headroom::compare
