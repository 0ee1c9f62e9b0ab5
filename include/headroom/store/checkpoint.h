// Checkpoints: one safetensors file that is enough to rebuild a model, evaluate it, and go on training.
//
// Tensors: "model.<parameter>" (F32), "tokenizer" (U8: Tokenizer::serialised()), and whatever the trainer adds under
// "optimizer." and "memory.". Metadata: format "headroom.checkpoint.1", config (TOML), tokenizer_kind,
// tokenizer_name, step, checksums (of the tensors, as JSON), and the trainer's own entries. Models that choose a
// class have nothing of a tokenizer.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/models/model.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::store {

struct Checkpoint {
  config::Config config;
  std::int64_t step = 0;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null: the model reads no text
  std::map<std::string, at::Tensor> tensors;               // all but "tokenizer"
  std::map<std::string, std::string> metadata;             // the trainer's own entries
  bool verified = false;                                   // it was read, and its tensors had their checksums
};

// A tensor that was to be written holds a number that is not finite.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

// `step_<n>.safetensors` in `folder`, written aside and renamed, then `latest`, then old ones beyond `keep` removed
// (never the new one). Returns its path. Throws Error naming the file, and NotFiniteError, before anything is
// written, when a tensor holds a number that is not finite: such a checkpoint would be of no use.
std::filesystem::path write_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                                       std::int64_t keep);

// The same as one file of any name.
void save_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file);

// Checks everything against the embedded config: the tokenizer, and name, type and shape of every parameter; then the
// bytes of every tensor against the checksums that they were written with, if there are any (older files have none,
// which is said in a remark). Nothing larger than the file is allocated. The tensors are views of the mapped file: read
// them, never write to them. Throws MisuseError naming the file and what is wrong.
Checkpoint read_checkpoint(const std::filesystem::path& file);

// A checkpoint file, or of a run folder (or the folder of its checkpoints) the checkpoint that `latest` names; where
// that one is missing or does not describe a model, the newest that does (with a warning); the only one there is
// whatever it is like. Throws MisuseError.
std::filesystem::path find_checkpoint(const std::filesystem::path& run_or_checkpoint);

// The newest checkpoint of a run folder, or of the folder of its checkpoints, with the mean of the parameters of its
// newest `count` checkpoints; without what only training needs. Throws MisuseError where there are fewer.
Checkpoint average_checkpoints(const std::filesystem::path& run, std::int64_t count);

// The step of a checkpoint file, its tensors unread; none where there is no such file or it tells none.
std::optional<std::int64_t> step_in(const std::filesystem::path& file);

// Whether a run folder holds any checkpoint file, readable or not.
bool has_checkpoints(const std::filesystem::path& run);

// The model with the checkpoint's parameters, on `device`.
std::unique_ptr<models::Model> build_model(const Checkpoint& checkpoint, at::Device device = at::kCPU);

// The same for writing text in `context`: matrices of products are kept in its compute type (see
// nn::Parameters::keep_products_in).
std::unique_ptr<models::Model> build_writer(const Checkpoint& checkpoint, at::Device device,
                                            const nn::Context& context);

}  // namespace headroom::store
