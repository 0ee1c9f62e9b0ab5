// The commands that need tensors, one function each: call the rooms below, print. They return the exit status.
#pragma once

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
int run(const Report& command, const EngineRequest& request);
int run(const Demo& command, const EngineRequest& request);
int run(const Golden& command, const EngineRequest& request);
int run(const Bench& command, const EngineRequest& request);
int run(const Doctor& command, const EngineRequest& request);
int run(const CheckpointInfo& command, const EngineRequest& request);
int run(const CheckpointExport& command, const EngineRequest& request);
int run(const Import& command, const EngineRequest& request);

inline constexpr int kInterrupted = 130;  // as shells count Ctrl-C

// The request's `--set` changes, then its `--threads`.
std::vector<std::string> overrides(const std::vector<std::string>& set, const EngineRequest& request);

}  // namespace headroom::cli
