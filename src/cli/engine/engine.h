// The commands that need tensors, and their shared helpers. Each run() returns the exit status.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "headroom/core/json.h"
#include "headroom/store/open_model.h"
#include "training/train/loop/sharded.h"

namespace headroom::cli {

int run(const Train& command, const EngineRequest& request);
int run(const Train& command, const EngineRequest& request, const train::ShardedCall& sharded);
int run(const Evaluate& command, const EngineRequest& request);
int run(const Generate& command, const EngineRequest& request);
int run(const Serve& command, const EngineRequest& request);
int run(const Analyse& command, const EngineRequest& request);
int run(const Inspect& command, const EngineRequest& request);
int run(const Compare& command, const EngineRequest& request);
int run(const Cost& command, const EngineRequest& request);
int run(const Sweep& command, const EngineRequest& request);
int run(const Try& command, const EngineRequest& request);
int run(const Report& command, const EngineRequest& request);
int run(const Demo& command, const EngineRequest& request);
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

// Refuses to overwrite a file that also has training state, or any other without `force`, or to add parameters to the
// checkpoints of a run. Throws UserError "<command>: --out: ...".
void require_replaceable_checkpoint(const std::string& out, const char* command, bool force);

// An option that applies to only one kind of model.
struct GivenOption {
  const char* name;
  bool given;
  config::ModelKind kind;
};

struct Opening {
  const ModelChoice& choice;
  std::initializer_list<GivenOption> options;  // options of the command
  bool writes = false;                         // store::OpenOptions::writes
};

// Opens the model with the request's threads and copies the decoding settings into its config. Throws UserError if one
// of the options is given and the model is of another kind; Error if a parameter is not finite.
store::OpenedModel open_model(const Opening& opening, const EngineRequest& request);

// Returns the models; with `--checkpoints all`, every checkpoint of every run, oldest first.
std::vector<ModelChoice> choices_of(const SeveralModels& models);

// Adds "threads" and "precision" (fp32 or bf16) to a document.
void add_computation(Json& document, const store::OpenedModel& opened);

// Joins the process group if torchrun started this process, and calls `run`. An error on any rank is printed once, with
// the rank, and stops all ranks; torchrun does not retry an error that would recur. With one rank, throws what `run`
// throws; otherwise throws EndedError on the other ranks, and Error for torch's exceptions.
int run_distributed(const EngineRequest& request, const std::function<int()>& run);

}  // namespace headroom::cli
