// From runs to what is said of them.
#pragma once

#include <cstddef>

#include "tools/compare/compare.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/run/runs.h"

namespace headroom::compare {

// The choice of tuned values whose run has the best headline figure, among those that `runs` knows; the first of equal
// ones, and of none.
std::size_t best_choice(const PlannedModel& model, Runs& runs, const tasks::Task& task);

// A line for each model of which any run is known, with its seeds up to the first that is not.
std::vector<ComparedRun> summarise(const Plan& plan, Runs& runs, const tasks::Task& task);

// What cost::cost_json counts, from the run's config.
void add_costs(ComparedRun& run);

// Sentences on what only shows once the runs are there: sizes, machines, values that did best at the edge of what was
// tried.
std::vector<std::string> remarks(const CompareResult& result);

}  // namespace headroom::compare
