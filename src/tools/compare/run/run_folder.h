// Trains runs and reads their folders. `train` writes config.toml, metrics.jsonl and samples.jsonl. run.json is added
// when a run starts and records its origin; result.json is added when it has finished.
#pragma once

#include <filesystem>
#include <string>

#include "tools/compare/figures/result.h"
#include "training/tasks/task.h"

namespace headroom::compare {

inline constexpr const char* kOriginFile = "run.json";
inline constexpr const char* kResultFile = "result.json";
inline constexpr const char* kTestFile = "test.json";  // TestResult

// Trains and writes both files. A run that diverges is returned with `diverged`. `request.opened` and
// `request.finished` must not be set. `command`: the command line, if it is about this run alone.
TrainedRun train_run(train::TrainRequest request, const std::string& command);

// Reads the config that the folder's run was trained with.
config::Config read_run_config(const std::filesystem::path& folder);

// Reads result.json and the logs. Throws UserError naming result.json if train_run() did not write it.
TrainedRun read_finished_run(const std::filesystem::path& folder, const config::Config& config,
                             const tasks::Task& task);

// Like read_finished_run(), for a run that may be unfinished: then the last logged values are used as its result.
// `config` must be the folder's.
TrainedRun read_run(const std::filesystem::path& folder, const config::Config& config, const tasks::Task& task);

void write_test(const TestResult& test, const std::filesystem::path& folder);

// Returns the identity of the data that the folder's run was trained with; empty if it is not recorded.
train::RunData recorded_data(const std::filesystem::path& folder);

// Returns "Intel(R) Xeon(R) Processor, 2 threads, fp32, torch 2.13.0", with the device unless it is the CPU.
std::string describe_machine(const config::TrainOptions& options);

// Returns "headroom 0.1.0, commit 59f40b3"; without the commit if the build does not know it.
std::string program_version();

// Returns the current time as "2026-03-01 10:12 UTC".
std::string utc_now();

}  // namespace headroom::compare
