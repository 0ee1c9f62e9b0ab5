// From a plan to trained runs.
#pragma once

#include "plan.h"
#include "runs.h"

namespace headroom::analysis {

// Whether nothing is left to be trained.
bool is_carried_out(const Plan& plan, Runs& runs, const tasks::Task& task);

// Trains what has not finished, seed by seed: each model's choices with the first seed, then for each other seed every
// model with its best. Whether it came to its end: Ctrl-C stops it. Where a model diverged that may not, Error is
// thrown once all others are trained; with the first seed, its other seeds are not trained.
bool carry_out(const Plan& plan, Runs& runs, const tasks::Task& task);

}  // namespace headroom::analysis
