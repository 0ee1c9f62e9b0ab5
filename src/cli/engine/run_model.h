// The trained model that a command is about.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "headroom/cli/commands.h"
#include "headroom/core/json.h"
#include "headroom/eval/checkpoint.h"

namespace headroom::cli {

struct RunModel {
  std::string name;  // of the checkpoint file, or of the folder whose checkpoints' mean it is
  eval::Checkpoint checkpoint;
};

// `run` is a run folder or checkpoint; `average` more than 1: of a folder. The checkpoint's config has `decoding`'s
// settings. Throws MisuseError.
RunModel open_run_model(const std::string& run, std::int64_t average, const Decoding& decoding);

// Adds to a document how it was computed: "threads" and "precision", as `automatic` turned out.
void tell_computation(Json& document, const RunModel& run, at::Device device);

// From now on as many threads as the request says or, where it does not, the run.
void use_threads(const RunModel& run, const EngineRequest& request);

}  // namespace headroom::cli
