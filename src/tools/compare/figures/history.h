// What a run's metrics.jsonl and samples.jsonl say about its course.
#pragma once

#include <filesystem>
#include <vector>

#include "compared_run.h"

namespace headroom::compare {

// Lines that are torn or say nothing of these are passed over; nothing where there is no file.
History read_history(const std::filesystem::path& folder, const tasks::Task& task);

}  // namespace headroom::compare
