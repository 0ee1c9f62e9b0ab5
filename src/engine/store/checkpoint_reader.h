// Opens a checkpoint in separate steps, so that its model is built only once; converts the tensors of safetensors files
// to torch tensors, and computes their checksums.
#pragma once

#include <ATen/ATen.h>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headroom/core/safetensors.h"
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

// Throws Error naming the tensor if its type cannot be stored.
DType stored_type(at::ScalarType type, const std::string& name);

// Returns a read-only view of the mapped file, which stays open as long as the tensor lives; a copy if the bytes are
// misaligned. Throws UserError naming file and tensor for a type that torch lacks.
at::Tensor view_of(const std::shared_ptr<const SafetensorsFile>& file, const std::string& name,
                   const StoredTensor& stored);

std::span<const std::byte> bytes_of(const at::Tensor& tensor);  // contiguous, on the CPU

// A tensor, or this rank's part of it.
struct OwnedBytes {
  std::string name;
  std::size_t begin = 0;  // of the first byte in the whole tensor
  at::Tensor values;      // contiguous, on the CPU
};

// Returns the CRC-32 of each element of `owned` as JSON, for join_checksums().
std::string checksums_of(const std::vector<OwnedBytes>& owned);
// Returns the CRC-32 of each whole tensor as JSON, {"model.embed": "1f2e3d4c", ...}, from the checksums_of() of all
// ranks. `sizes` are in bytes. Throws SharedError unless each byte is owned by exactly one rank.
std::string join_checksums(const std::vector<std::string>& parts, const std::map<std::string, std::size_t>& sizes);

// Checks all tensors against `stored`, the JSON above. Throws UserError naming `origin` and the first tensor whose
// checksum is missing or does not match.
void verify_checksums(const std::map<std::string, at::Tensor>& tensors, const std::string& stored,
                      const std::string& origin);

}  // namespace headroom::store
