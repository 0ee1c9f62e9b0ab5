// From a record and its runs to a result that can be shown.
#pragma once

#include "tools/compare/run/record.h"
#include "tools/compare/run/runs.h"

namespace headroom::compare {

// Of the runs that have finished; those that have not are a note.
CompareResult assemble(const Record& record, Runs& runs, const tasks::Task& task);

// What report() shows of a folder, without its page.
CompareResult result_in(const std::filesystem::path& folder);

// Writes the page into `out`.
void publish(CompareResult& result, const std::filesystem::path& out);

}  // namespace headroom::compare
