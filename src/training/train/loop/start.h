// The start of a run: its folder, and its parameters, from its own last checkpoint (--resume) or from another run's
// (train.start_from).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/models/model.h"
#include "headroom/store/checkpoint.h"
#include "train.h"
#include "training/tasks/task.h"

namespace headroom::train {

// What an --out folder holds.
enum class FolderKind { run, comparison };

// The file that identifies a comparison or a sweep.
inline constexpr const char* kComparisonFile = "comparison.json";

// Throws UserError if the folder has contents of another kind than `wanted`. The message mentions `what`, such as "the
// run".
void refuse_others(const std::filesystem::path& folder, FolderKind wanted, std::string_view what);

struct ResumePoint {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
};

// Returns the checkpoint to continue from, or nullopt if there is none. The leading rank, which must hold the folder's
// lock, removes files that a killed process left incomplete. A run restarted by torchrun is resumed even without
// request.resume. Throws UserError if the folder holds a run but request.resume is not set, only unreadable
// checkpoints, or a comparison.
std::optional<ResumePoint> open_run(const TrainRequest& request, const parallel::GlooGroup& group);

// Returns the config of a run that continues one with the config `past`. Values that the earlier run determined are
// kept: resolved "auto" values, the steps that train.seconds allowed, the accumulators that its ranks needed, the
// teacher's hash. Validation and checkpoint intervals are kept only for the same number of steps. If no step is left
// after `step`, so are the options of steps: the run's record says what its steps were trained with.
config::Config as_resumed(config::Config config, const config::Config& past, std::int64_t step = 0);

// Throws UserError naming the first key that differs but must not: any key of `model`, a key on which the saved state
// depends (batch_size, batching, seed, optimizer), or train.seconds. Logs other changes (more steps, another learning
// rate).
void check_resumable(const ResumePoint& resumed, const config::Config& config);

struct InitialParameters {
  std::filesystem::path file;
  store::Checkpoint checkpoint;
  std::string parameters_sha256;
};

// Opens the checkpoint named by train.start_from; returns nullopt if it is not set. Throws UserError if the checkpoint
// cannot be used.
std::optional<InitialParameters> open_initial_parameters(const config::Config& config);

// Returns the config of a run that starts from the checkpoint: unset keys of `model` are taken from the checkpoint,
// `tokenizer` describes the checkpoint's tokenizer, and train.start_sha256 is the hash of its parameters. Throws
// UserError naming the key and both values if the checkpoint's model, tokenizer or parameters (train.start_sha256)
// differ from the config.
config::Config with_initial_parameters(config::Config config, const InitialParameters& initial);
// Opens the checkpoint first. Returns the config unchanged if train.start_from is not set.
config::Config with_initial_parameters(config::Config config);

// Sets train.teacher_sha256 to the hash of the teacher's parameters, so that the config identifies the teacher. Leaves
// it empty without train.teacher, and if the teacher cannot be read.
config::Config with_teacher_sha256(config::Config config);

// For a resumed run: takes the keys from its own checkpoint, so the initial checkpoint is not needed.
config::Config with_resumed_parameters(config::Config config, const ResumePoint& resumed);

// Opens the data of a run with train.start_from, encoded with the tokenizer in the checkpoint `file`. Throws UserError
// for unusable data.
tasks::TaskData open_data_with(const tasks::Task& task, config::Config config, const std::filesystem::path& file,
                               const std::filesystem::path& cache);

// Builds the model of a run that starts from `initial`, continues `resumed`, or, if both are null, starts from random
// parameters.
std::unique_ptr<models::Model> build_run_model(const config::Config& config, const ResumePoint* resumed,
                                               const InitialParameters* initial);

// Settings of a run that are probably mistakes (warnings.cc).

// Throws UserError naming a file of data.train or data.validation that does not exist.
void require_data_files(const config::DataOptions& data);

// Logs a warning for keys without effect, data that is not named, and validation on training data. `tokenizer` is the
// run's; null if its task reads no text.
void log_warnings(const config::Config& config, const tokenizers::Tokenizer* tokenizer);

}  // namespace headroom::train
