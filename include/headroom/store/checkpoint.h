// Checkpoints: one safetensors file that is enough to rebuild a model, evaluate it, and continue training.
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
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null: the model reads no text
  std::map<std::string, at::Tensor> tensors;               // all but "tokenizer"
  std::map<std::string, std::string> metadata;             // the trainer's own entries
  // To be written by several processes: numbers [begin, begin + numel) that this one holds of tensors that are only
  // shapes to it.
  struct Piece {
    std::int64_t begin = 0;
    at::Tensor numbers;
  };
  std::map<std::string, std::vector<Piece>> pieces;
  bool verified = false;  // it was read, and its tensors had their checksums
};

// A tensor that was to be written holds a number that is not finite.
class NotFiniteError : public Error {
 public:
  using Error::Error;
};

// One file of any name, written aside and renamed. Throws Error naming the file, and NotFiniteError, before anything is
// written, when a tensor holds a number that is not finite: such a checkpoint would be of no use.
//
// Of several processes all call it. Each writes those tensors into the file that it holds; the others, of the meta
// device there, are only shapes to it, and other processes must hold them, or the pieces that it does not hold. What
// one cannot write, all throw.
void save_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& file, ProcessGroup& peers = alone());

// What of a file is checked: all but its tensors' contents, or these as well.
enum class Check { shapes, contents };

// Checks everything against the embedded config: the tokenizer, and name, type and shape of every parameter; then the
// bytes of every tensor against the checksums that they were written with, if there are any (older files have none,
// which is said in a remark). Nothing larger than the file is allocated. The tensors are views of the mapped file: read
// them, never write to them. Throws UserError naming the file and what is wrong.
Checkpoint read_checkpoint(const std::filesystem::path& file, Check check = Check::contents);

// The step of a checkpoint file, its tensors unread; none where there is no such file or it has none.
std::optional<std::int64_t> step_in(const std::filesystem::path& file);

}  // namespace headroom::store
