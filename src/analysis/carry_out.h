// From a plan to trained runs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "plan.h"
#include "runs.h"

namespace headroom::analysis {

// Every choice of every model must be comparable with every other; throws MisuseError.
void check_choices(const Plan& plan);

// Folders of an earlier comparison must hold the same runs; throws MisuseError.
void check_folders(const Plan& plan);

// Whether nothing is left to be trained.
bool is_carried_out(const Plan& plan, Runs& runs, const tasks::Task& task);

// All that can be checked of runs before the first of them is trained: their device and memory, their data, and that
// what they are to continue can be. Throws MisuseError.
void check_runs(const Plan& plan, const std::vector<std::string>& prompts, const tasks::Task& task,
                const std::filesystem::path& cache);

// Trains what has not finished, seed by seed: each model's choices with the first seed, then for each other seed every
// model with its best. Whether it came to its end: Ctrl-C stops it. Where a model diverged that may not, Error is
// thrown once all others are trained; with the first seed, its other seeds are not trained.
bool carry_out(const Plan& plan, Runs& runs, const tasks::Task& task);

}  // namespace headroom::analysis
