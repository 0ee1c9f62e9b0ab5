// What a finished run leaves for comparisons in its folder.
#pragma once

#include <filesystem>

#include "tools/compare/compare.h"
#include "training/tasks/task.h"

namespace headroom::compare {

inline constexpr const char* kResultFile = "result.json";

void write_result(const TrainedRun& run, const tasks::Task& task, const std::filesystem::path& file);
// All but the seed. Throws UserError naming the file when it is not what write_result() wrote.
TrainedRun read_result(const std::filesystem::path& file, const tasks::Task& task);

}  // namespace headroom::compare
