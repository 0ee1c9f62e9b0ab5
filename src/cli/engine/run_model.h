// The trained model that a command is about.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>

#include "headroom/cli/commands.h"
#include "headroom/core/json.h"
#include "headroom/store/checkpoint.h"

namespace headroom::cli {

struct RunModel {
  std::string name;  // of the checkpoint file, or of the folder whose checkpoints' mean it is
  store::Checkpoint checkpoint;
};

// An option of the command line, and the only kind of model that has a use for it.
struct GivenOption {
  const char* name;
  bool given;
  config::ModelKind kind;
};

// `run` is a run folder or checkpoint; `average` more than 1: of a folder. The checkpoint's config has `decoding`'s
// settings. Throws MisuseError, also where one of `more` or of decoding's options is given and the model is of another
// kind.
RunModel open_run_model(const std::string& run, std::int64_t average, const Decoding& decoding,
                        std::initializer_list<GivenOption> more);

// Adds to a document how it was computed: "threads" and "precision", as `automatic` turned out.
void tell_computation(Json& document, const RunModel& run, at::Device device);

// From now on as many threads as the request says or, where it does not, the run.
void use_threads(const RunModel& run, const EngineRequest& request);

}  // namespace headroom::cli
