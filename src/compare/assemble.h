// From a record and its runs to a result that can be shown.
#pragma once

#include "record.h"
#include "runs.h"

namespace headroom::compare {

// Of the runs that have finished; those that have not are a note.
CompareResult assemble(const Record& record, Runs& runs, const tasks::Task& task);

// Writes the page into `out`.
void publish(CompareResult& result, const std::filesystem::path& out);

}  // namespace headroom::compare
