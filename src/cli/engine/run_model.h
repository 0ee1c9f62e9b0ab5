// Opens the trained models of a command.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "headroom/core/json.h"
#include "headroom/store/open_model.h"

namespace headroom::cli {

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

}  // namespace headroom::cli
