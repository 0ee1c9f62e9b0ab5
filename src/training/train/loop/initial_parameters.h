// Starting a run from the parameters of a checkpoint (train.start_from).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "headroom/models/model.h"
#include "headroom/store/checkpoint.h"
#include "resume.h"
#include "training/tasks/task.h"

namespace headroom::train {

struct InitialParameters {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
  std::string parameters_sha256;
};

// The checkpoint that train.start_from names; nothing if it is not set. Throws UserError.
std::optional<InitialParameters> open_initial_parameters(const config::Config& config);

// The config of a run that starts from the checkpoint: keys of `model` that are not given are the checkpoint's,
// `tokenizer` describes the checkpoint's, and train.start_sha256 is the hash of its parameters. Throws UserError naming
// the key and both values if the checkpoint has another model or tokenizer, or other parameters than
// train.start_sha256.
config::Config with_initial_parameters(config::Config config, const InitialParameters& initial);
// The same, opening the checkpoint; returns the config unchanged without train.start_from.
config::Config with_initial_parameters(config::Config config);

// The same for a run that is resumed: the keys are taken from its own checkpoint, so the initial one is not needed.
config::Config with_resumed_parameters(config::Config config, const ResumePoint& resumed);

// The data of a run with train.start_from, encoded by the tokenizer in the checkpoint `file`. Throws UserError.
tasks::TaskData open_data_with(const tasks::Task& task, config::Config config, const std::filesystem::path& file,
                               const std::filesystem::path& cache);

// A trainable model of these options with the checkpoint's parameters.
std::unique_ptr<models::Model> build_initial_model(const InitialParameters& initial,
                                                   const config::ModelOptions& options, at::Device device);

}  // namespace headroom::train
