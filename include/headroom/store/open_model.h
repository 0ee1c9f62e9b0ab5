// From a checkpoint to a model that computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headroom/models/model.h"
#include "headroom/nn/context.h"
#include "headroom/store/checkpoint.h"

namespace headroom::store {

// The checkpoint's model with parameters of its own on `device`, to train further.
std::unique_ptr<models::Model> build_trainable(const Checkpoint& checkpoint, at::Device device);

// The checkpoint's model for reading alone: on the CPU its parameters are the checkpoint's tensors themselves, so that
// nothing is copied. Nothing may write to them. `for_writing` in a compute type: the matrices of products are kept in
// that type (nn::Parameters::keep_products_in), which pays where every token goes through all of them.
std::unique_ptr<models::Model> build_model(const Checkpoint& checkpoint, at::Device device = at::kCPU,
                                           std::optional<at::ScalarType> for_writing = {});

struct OpenOptions {
  std::int64_t average = 1;                    // more than 1: the mean of so many newest checkpoints of a run folder
  std::string device;                          // as train.device; empty: the run's
  std::int64_t threads = 0;                    // 0: as many as the run's config says
  std::optional<config::Precision> precision;  // without it: the run's
  bool writes = false;                         // text, token by token
};

// A trained model, and how it computes.
struct OpenedModel {
  std::string name;  // of the checkpoint file, or of the folder whose checkpoints' mean it is
  Checkpoint checkpoint;
  nn::Context context;
  std::unique_ptr<models::Model> model;

  const config::Config& config() const { return checkpoint.config; }
};

// The model of a run folder or a checkpoint file; from now on the process computes with its threads. The one way for
// every command that evaluates a model, writes with it or looks into it. Throws UserError naming the file or option.
OpenedModel open_model(const std::string& run_or_checkpoint, const OpenOptions& options);

}  // namespace headroom::store
