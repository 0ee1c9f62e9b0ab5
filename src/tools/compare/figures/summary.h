// From trained runs to a result that can be shown.
#pragma once

#include <cstddef>
#include <filesystem>

#include "tools/compare/compare.h"
#include "tools/compare/run/comparison_file.h"
#include "tools/compare/run/execution.h"

namespace headroom::compare {

// The index of the tuned values whose run has the best headline figure. Runs that are not in `runs` are skipped; ties
// go to the first, and 0 is returned if there is no finite figure.
std::size_t best_choice(const PlannedModel& model, Runs& runs, const tasks::Task& task);

// The result of all finished runs of the plan. A note names the unfinished ones.
CompareResult make_result(const ComparisonRecord& record, Runs& runs, const tasks::Task& task);

// The result that report() shows for a folder: a comparison's, a sweep's or a single run's. Throws UserError for a
// folder that holds none of these, or nothing to show yet.
CompareResult load_result(const std::filesystem::path& folder);

// Writes out/report.html and sets result.report.
void write_page(CompareResult& result, const std::filesystem::path& out);

}  // namespace headroom::compare
