// From a plan to trained runs.
#pragma once

#include <string>

#include "plan.h"
#include "runs.h"

namespace headroom::compare {

// Whether nothing is left to be trained.
bool is_carried_out(const Plan& plan, Runs& runs, const tasks::Task& task);

struct Outcome {
  bool interrupted = false;  // Ctrl-C
  std::string failure;       // the first run that diverged and may not; empty: none
};

// Trains what has not finished, seed by seed: each model's choices with the first seed, then for each other seed every
// model with its best. A model that diverged with the first seed has no others; the rest are trained nevertheless.
Outcome carry_out(const Plan& plan, Runs& runs, const tasks::Task& task);

}  // namespace headroom::compare
