// Reads and writes run folders for comparisons. `train` writes config.toml, metrics.jsonl and samples.jsonl;
// result.json is added when a run has finished and also records the machine and the program version.
#pragma once

#include <filesystem>
#include <string>

#include "tools/compare/figures/result.h"
#include "training/tasks/task.h"

namespace headroom::compare {

inline constexpr const char* kResultFile = "result.json";

// Reads the config that the folder's run was trained with.
config::Config read_run_config(const std::filesystem::path& folder);

// Writes `run` to the folder's result.json.
void write_finished_run(const TrainedRun& run, const tasks::Task& task, const std::filesystem::path& folder);

// Reads result.json and the logs. Throws UserError naming result.json if write_finished_run() did not write it.
TrainedRun read_finished_run(const std::filesystem::path& folder, const config::Config& config,
                             const tasks::Task& task);

// Like read_finished_run(), for a run that may be unfinished: its last logged values are used as the result. `config`
// must be the folder's.
TrainedRun read_logged_run(const std::filesystem::path& folder, const config::Config& config, const tasks::Task& task);

// Reads what the run has logged so far; empty without files. Skips corrupt lines.
RunLog read_run_log(const std::filesystem::path& folder, const tasks::Task& task);

// Returns "headroom 0.1.0, commit 59f40b3"; without the commit if the build does not know it.
std::string program_version();

// Returns the current time as "2026-03-01 10:12 UTC".
std::string utc_now();

}  // namespace headroom::compare
