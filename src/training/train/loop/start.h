// A checkpoint as the beginning of another run.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "headroom/models/model.h"
#include "headroom/store/checkpoint.h"
#include "resume.h"
#include "starting_parameters.h"
#include "training/tasks/task.h"

namespace headroom::train {

struct Start {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
  std::string parameters_sha256;
};

// What train.start_from names, if anything. Throws UserError.
std::optional<Start> open_start(const config::Config& config);

// with_start(), the checkpoint being open.
config::Config begin_with(config::Config config, const Start& start);

// A config with train.start_from whose run is resumed: what it leaves to the checkpoint that the run began with is in
// the run's own, so that the other is no longer needed.
config::Config go_on_with(config::Config config, const Past& past);

// The data of such a run, in the tokens of the tokenizer in `file`. Throws UserError.
tasks::TaskData open_data(const tasks::Task& task, config::Config config, const std::filesystem::path& file,
                          const std::filesystem::path& cache);

// A model of these options with the checkpoint's parameters, to be trained.
std::unique_ptr<models::Model> first_model(const Start& start, const config::ModelOptions& options, at::Device device);

}  // namespace headroom::train
