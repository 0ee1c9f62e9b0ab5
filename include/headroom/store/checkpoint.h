// Checkpoints: safetensors files that rebuild a model, evaluate it and continue its training, and the run folders that
// hold them.
//
// Tensors: "model.<parameter>" (F32), "tokenizer" (U8: Tokenizer::serialised()), and the trainer's own "optimizer.*"
// and "memory.*". Metadata: format "headroom.checkpoint.1", config (TOML), tokenizer_kind, tokenizer_name, step,
// checksums (of the tensors, as JSON), and the trainer's own entries. Models with classes have no tokenizer entries.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
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
  std::map<std::string, at::Tensor> tensors;               // all but "tokenizer"
  std::map<std::string, std::string> metadata;             // the trainer's own entries
  // Elements [begin, begin + numel) of a tensor that this rank owns; `tensors` has it on the meta device.
  struct Shard {
    std::int64_t begin = 0;
    at::Tensor values;
  };
  std::map<std::string, std::vector<Shard>> shards;  // to be written, by tensor
  bool verified = false;                             // read from a file, and the checksums matched
};

// A tensor to be written has a value that is not finite.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

// Writes `file` atomically. Throws Error naming the file, and NotFiniteError, before anything is written, if a tensor
// has a value that is not finite.
//
// With several ranks all must call it. Each writes the tensors and shards that it holds; tensors on the meta device are
// written by other ranks. Errors of one rank are thrown on all.
void save_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file, ProcessGroup& peers = alone());

// What read_checkpoint() checks: all but the values of the tensors, or all.
enum class Check { shapes, contents };

// Reads a checkpoint and checks it against the embedded config: the tokenizer; name, type and shape of every parameter;
// with Check::contents also the checksums (without checksums, as in older files, a message is logged). Allocates no
// more than the file's size. The tensors are read-only views of the mapped file. Throws UserError naming the file and
// what is wrong.
Checkpoint read_checkpoint(const std::filesystem::path& file, Check check = Check::contents);

// The step of a checkpoint file, without reading its tensors; not set if there is no such file or step.
std::optional<std::int64_t> step_in(const std::filesystem::path& file);

// Run folders. All functions also take the folder "checkpoints" inside of a run folder.

// Writes `step_<n>.safetensors` and `latest` into `folder`, then removes the oldest checkpoints beyond `keep`, never
// the new one. Returns the new file. Throws like save_checkpoint(). With several ranks all must call it.
std::filesystem::path write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       std::int64_t keep, ProcessGroup& peers = alone());

// The file itself, or the checkpoint that `latest` names in a run folder. If that one is missing or describes no model,
// the newest that does, with a warning; an only checkpoint is returned unchecked. Throws UserError if there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& run_or_checkpoint);

// The newest checkpoint with the mean of the parameters of the newest `count`, without the trainer's tensors. Throws
// UserError if there are fewer.
Checkpoint average_checkpoints(const std::filesystem::path& run, std::int64_t count);

// All checkpoints, oldest first. Throws UserError if there are none.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

// Whether a run folder holds any checkpoint file, readable or not.
bool has_checkpoints(const std::filesystem::path& run);

}  // namespace headroom::store
