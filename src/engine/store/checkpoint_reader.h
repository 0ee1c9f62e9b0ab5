// The steps of opening a checkpoint, so that its model is built once.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "headroom/store/checkpoint.h"

namespace headroom::store {

// Step 1: everything but the parameters is checked. Throws UserError.
Checkpoint read_unchecked(const std::filesystem::path& file);

// Step 2: the model with the checkpoint's parameters, each passed through place(), in the type and on the device of
// `options`. Throws UserError, which begins with `origin`, unless the checkpoint has all parameters of the config, in
// their shapes, and no others.
std::unique_ptr<models::Model> build(const Checkpoint& checkpoint, const std::string& origin,
                                     const at::TensorOptions& options,
                                     const std::function<at::Tensor(const at::Tensor& stored)>& place);

// Step 3: checks the values against the checksums and sets checkpoint.verified. `parameters`: the model's. Throws
// UserError.
void verify(Checkpoint& checkpoint, const nn::Parameters& parameters, const std::string& origin);

// Opens the first readable checkpoint of a run folder: calls open() for the one that `latest` names, then for the
// others, newest first, until it throws no UserError, with a warning for each that does. The error of an only
// checkpoint is thrown. Throws UserError if none can be opened.
using OpenCandidate = std::function<void(const std::filesystem::path& file, bool is_only)>;
void open_first(const std::filesystem::path& run_or_checkpoint, const OpenCandidate& open);

}  // namespace headroom::store
