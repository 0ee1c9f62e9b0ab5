// Opens a checkpoint in separate steps, so that its model is built only once.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "headroom/store/checkpoint.h"

namespace headroom::store {

// Step 1: reads the checkpoint and checks everything except the parameters. Throws UserError.
Checkpoint read_unchecked(const std::filesystem::path& file);

// Step 2: returns the model with the checkpoint's parameters, each passed through place(). A stored tensor may be in
// half precision; place() returns float32, or half precision for a matrix that is only read in the compute type
// (`wanted.matmul_only`). Throws UserError starting with `origin` unless the checkpoint has exactly the config's
// parameters, in their shapes.
using Place = std::function<at::Tensor(const at::Tensor& stored, const nn::Parameter& wanted)>;
std::unique_ptr<models::Model> build(const Checkpoint& checkpoint, const std::string& origin,
                                     const at::TensorOptions& options, const Place& place);

// Step 3: checks the values against the checksums and sets checkpoint.verified. Throws UserError, which names the
// newest intact checkpoint before this one if `origin` is a file of a run.
void verify(Checkpoint& checkpoint, const std::string& origin);

// Returns the checkpoints before a file of a run, newest first; empty for any other file.
std::vector<std::filesystem::path> earlier_checkpoints(const std::filesystem::path& file);

// Opens the first readable checkpoint of a run folder: calls open() for the one that `latest` names, then for the
// others, newest first, until it does not throw UserError. Logs a warning for each failure. If a running training
// removes a checkpoint meanwhile, starts again with the current list. Throws UserError if no checkpoint can be opened;
// with a single checkpoint, its own error.
using OpenCandidate = std::function<void(const std::filesystem::path& file, bool is_only)>;
void open_first(const std::filesystem::path& run_or_checkpoint, const OpenCandidate& open);

}  // namespace headroom::store
