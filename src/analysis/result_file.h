// What a finished run leaves for the comparison: out/<name>/result.json.
#pragma once

#include <filesystem>
#include <string>

#include "headroom/tasks/task.h"
#include "headroom/train/train.h"

namespace headroom::analysis {

struct FinishedRun {
  train::TrainResult result;
  std::string machine;  // what it was measured on and with
};

void write_result(const FinishedRun& run, const tasks::Task& task, const std::filesystem::path& file);
// Throws MisuseError naming the file when it is not what write_result() wrote.
FinishedRun read_result(const std::filesystem::path& file, const tasks::Task& task);

}  // namespace headroom::analysis
