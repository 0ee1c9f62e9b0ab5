// Builds the model of a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "headroom/store/checkpoint.h"

namespace headroom::store {

// Returns the checkpoint's model with its own copies of the parameters on `device`, for training. Throws UserError if a
// parameter is missing or its shape does not match the config.
std::unique_ptr<models::Model> build_trainable(const Checkpoint& checkpoint, at::Device device);

// Returns the checkpoint's model for inference. On the CPU it uses the checkpoint's read-only tensors without copying.
// If `decoding_type` is set, matmul weights are cached in that type (nn::Parameters::cache_weights_in), which is faster
// if every token uses all of them. Throws what build_trainable() throws.
std::unique_ptr<models::Model> build_model(const Checkpoint& checkpoint, at::Device device = at::kCPU,
                                           std::optional<at::ScalarType> decoding_type = {});

struct OpenOptions {
  std::int64_t average = 1;                    // number of newest checkpoints of a run folder to average
  std::string device;                          // as in train.device; empty: the run's device
  std::int64_t threads = 0;                    // 0: the run's number of threads
  std::optional<config::Precision> precision;  // default: the run's precision
  bool writes = false;                         // the model decodes token by token
  // Half-precision parameters are converted to float32 once if the copies take at most this many bytes. In larger
  // models they stay in half precision, and each matrix is converted whenever it is used.
  std::int64_t largest_float_copy = std::int64_t{4} << 30;
};

// A trained model and the context for running it.
struct OpenedModel {
  std::string name;  // the checkpoint file, or the run folder and the number of averaged checkpoints
  Checkpoint checkpoint;
  nn::Context context;
  std::unique_ptr<models::Model> model;

  const config::Config& config() const { return checkpoint.config; }
};

// Opens the model of a run folder or checkpoint file and sets the number of threads of this process. Throws UserError
// naming the file or option.
OpenedModel open_model(const std::string& run_or_checkpoint, const OpenOptions& options);

}  // namespace headroom::store
