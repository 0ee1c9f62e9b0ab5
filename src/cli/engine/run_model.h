// The trained model that a command is about.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "headroom/core/json.h"
#include "headroom/store/open_model.h"

namespace headroom::cli {

// An option of the command line, and the only kind of model that has a use for it.
struct GivenOption {
  const char* name;
  bool given;
  config::ModelKind kind;
};

struct Opening {
  const ModelChoice& choice;
  std::initializer_list<GivenOption> options;  // of the command
  bool writes = false;                         // as store::OpenOptions has it
};

// The model, with the choice's settings of decoding in its config, and the request's threads. Throws UserError, also
// where one of the options, or of decoding's, is given and the model is of another kind; Error for parameters that are
// not finite.
store::OpenedModel open_model(const Opening& opening, const EngineRequest& request);

// Each of the models; of all checkpoints those of every run, oldest first.
std::vector<ModelChoice> choices_of(const SeveralModels& models);

// Adds to a document how it was computed: "threads" and "precision", as `automatic` turned out.
void tell_computation(Json& document, const store::OpenedModel& opened);

}  // namespace headroom::cli
