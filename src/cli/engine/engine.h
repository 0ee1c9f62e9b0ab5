// The commands that need tensors, and their shared helpers. Each run() returns the exit status.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"

namespace headroom::cli {

int run(const Train& command, const EngineRequest& request);
int run(const Evaluate& command, const EngineRequest& request);
int run(const Generate& command, const EngineRequest& request);
int run(const Serve& command, const EngineRequest& request);
int run(const Analyse& command, const EngineRequest& request);
int run(const Inspect& command, const EngineRequest& request);
int run(const Compare& command, const EngineRequest& request);
int run(const Sweep& command, const EngineRequest& request);
int run(const Advise& command, const EngineRequest& request);
int run(const Try& command, const EngineRequest& request);
int run(const Report& command, const EngineRequest& request);
int run(const Runs& command, const EngineRequest& request);
int run(const Demo& command, const EngineRequest& request);
int run(const Golden& command, const EngineRequest& request);
int run(const Bench& command, const EngineRequest& request);
int run(const Doctor& command, const EngineRequest& request);
int run(const CheckpointInfo& command, const EngineRequest& request);
int run(const CheckpointExport& command, const EngineRequest& request);
int run(const Convert& command, const EngineRequest& request);
int run(const Import& command, const EngineRequest& request);

// Returns the command's `--set` changes, followed by its `--threads`.
std::vector<std::string> overrides(const std::vector<std::string>& set, const EngineRequest& request);

// Throws UserError naming `option` if the file cannot be created, or if it exists and does not start with `begins`:
// "evaluate: --items: a.txt exists and <difference>".
void require_replaceable_file(const std::string& path, std::string_view option, std::string_view begins,
                              std::string_view difference);

// Joins the process group if torchrun started this process, and calls `run`. An error on any rank is printed once, with
// the rank, and stops all ranks; torchrun does not retry an error that would recur. With one rank, throws what `run`
// throws; otherwise throws EndedError on the other ranks, and Error for torch's exceptions.
int run_distributed(const EngineRequest& request, const std::function<int()>& run);

}  // namespace headroom::cli
