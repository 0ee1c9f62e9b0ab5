// Checkpoints: safetensors files for rebuilding and evaluating a model and for resuming its training, and the run
// folders that contain them.
//
// Tensors: "model.<parameter>" (F32; BF16 or F16 for matrices of imported models in half precision), "tokenizer" (U8:
// Tokenizer::serialised()), and the trainer's own "optimizer.*" and "memory.*". Metadata: format
// "headroom.checkpoint.1", config (TOML), tokenizer_kind, tokenizer_name, step, checksums (of the tensors, as JSON),
// and the trainer's own entries. Models with classes have no tokenizer entries.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/process_group.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::store {

struct Checkpoint {
  config::Config config;
  std::int64_t step = 0;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null for models with classes
  std::map<std::string, at::Tensor> tensors;               // all tensors except "tokenizer"
  std::map<std::string, std::string> metadata;             // the trainer's own entries
  // Elements [begin, begin + numel) of a tensor, owned by this rank; the tensor is on the meta device in `tensors`.
  struct Shard {
    std::int64_t begin = 0;
    at::Tensor values;
  };
  std::map<std::string, std::vector<Shard>> shards;  // shards to write, keyed by tensor name
  bool verified = false;                             // read from a file with matching checksums
};

// Thrown if a tensor to be saved has a NaN or infinite value.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

// Writes `file` atomically. Throws Error naming the file. Throws NotFiniteError, before anything is written, if a
// tensor has a NaN or infinite value.
//
// With several ranks, all must call it. Each rank writes the tensors and shards that it owns; tensors on the meta
// device are written by other ranks. An error on one rank is thrown on all.
void save_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file, ProcessGroup& group = alone());

// `shapes`: read_checkpoint() checks everything except the tensors' values; `contents`: it checks the values too.
enum class Check { shapes, contents };

// Reads a checkpoint and checks it against the embedded config: the tokenizer; name, type and shape of every parameter;
// with Check::contents also the checksums (older files without checksums cause a log message). Allocates no more than
// the file's size. The tensors are read-only views of the mapped file. A folder in Hugging Face's layout is imported
// into memory. Throws UserError naming the file and the problem.
Checkpoint read_checkpoint(const std::filesystem::path& file, Check check = Check::contents);

// Returns the name of a tensor or owned shard with a NaN or infinite value, among names that begin with `prefix`; empty
// if all values are finite.
std::string first_not_finite(const Checkpoint& checkpoint, std::string_view prefix = "");

// Throws UserError naming the file (`origin`) and the parameter if a parameter has a NaN or infinite value.
void require_finite(const Checkpoint& checkpoint, const std::string& origin);

// Returns the step of a checkpoint file without reading its tensors; nullopt if the file or its step is missing.
std::optional<std::int64_t> step_in(const std::filesystem::path& file);

// Throws UserError "<what>: ..." if the file exists and is not a checkpoint, or contains an optimizer state, so that
// training could resume from it.
void require_replaceable(const std::filesystem::path& file, std::string_view what);

// Run folders. All functions also accept the folder "checkpoints" inside a run folder.

// Writes `step_<n>.safetensors` and `latest` into `folder`, then removes the oldest checkpoints beyond `keep`, but
// never the new one. Returns the new file. Throws what save_checkpoint() throws. With several ranks, all must call it.
std::filesystem::path write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       std::int64_t keep, ProcessGroup& group = alone());

// Returns a file or a folder in Hugging Face's layout unchanged, and for a run folder the checkpoint that `latest`
// names. If that checkpoint is missing or corrupt, returns the newest readable one and logs a warning; a single
// checkpoint is returned unchecked. Throws UserError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& run_or_checkpoint);

// Returns the newest checkpoint, with its parameters averaged over the newest `count` checkpoints and without the
// trainer's tensors. Throws UserError if there are fewer.
Checkpoint average_checkpoints(const std::filesystem::path& run, std::int64_t count);

// Returns all checkpoints, oldest first. Throws UserError if there are none.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

// Whether a run folder contains any checkpoint file, readable or not.
bool has_checkpoints(const std::filesystem::path& run);

}  // namespace headroom::store
