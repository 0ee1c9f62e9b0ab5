// Converts trained runs to a result for display.
#pragma once

#include <cstddef>
#include <filesystem>

#include "tools/compare/compare.h"
#include "tools/compare/run/comparison_file.h"
#include "tools/compare/run/execution.h"

namespace headroom::compare {

// Returns the index of the tuned values whose run has the best headline figure. Skips runs that are not in `runs`; ties
// go to the first. Returns 0 if no figure is finite.
std::size_t best_choice(const PlannedModel& model, Runs& runs, const tasks::Task& task);

// Returns the result of all finished runs of the plan, with a note that names the unfinished ones.
CompareResult make_result(const ComparisonRecord& record, Runs& runs, const tasks::Task& task);

// Returns the result that report() shows for a folder of a comparison, a sweep or a single run. Throws UserError if the
// folder contains none of these, or nothing to show yet.
CompareResult load_result(const std::filesystem::path& folder);

// Writes out/report.html and sets result.report.
void write_page(CompareResult& result, const std::filesystem::path& out);

}  // namespace headroom::compare
