// The interface of all models: options, parameters, and the loss of a batch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// The training objective: cross-entropy, or a mean of it and the divergence from a teacher, plus balance losses.
struct Loss {
  at::Tensor cross_entropy;  // scalar, mean over targets >= 0, in nats
  at::Tensor regulariser;    // scalar: weighted balance losses; undefined if there are none
  at::Tensor divergence =
      {};  // scalar: temperature^2 KL(teacher, model), mean over targets >= 0; undefined: no teacher
  double teacher_weight = 0.0;  // of the divergence
  at::Tensor total() const {
    const at::Tensor predicted =
        divergence.defined() ? (1.0 - teacher_weight) * cross_entropy + teacher_weight * divergence : cross_entropy;
    return regulariser.defined() ? predicted + regulariser : predicted;
  }
};

// Learning from another model's predictions (Hinton et al. 2015, "Distilling the knowledge in a neural network"): the
// batch's tensor "teacher" holds its logits [B, T, V]. With "teacher_index" [B, T, k], "teacher" holds the
// log-probabilities of these tokens at the temperature and, last, of all other tokens together, [B, T, k + 1]; the
// divergence is then over these k + 1 classes, a lower bound of the full divergence.
struct Distillation {
  double weight = 0.5, temperature = 1.0;
};

// Examples, one per row (the first axis of every tensor). Each model's loss() documents the tensors that it reads.
struct Batch {
  std::map<std::string, at::Tensor, std::less<>> tensors;
  std::vector<std::int64_t> targets;  // number of targets in each row; the loss is the mean over targets
  std::int64_t tokens = 0;            // positions read in all rows, for speed measurements
  double label_smoothing = 0.0;       // share of each target's probability that is spread evenly over the vocabulary
  Distillation distillation = {};     // used if there is a tensor "teacher"; language models only
  bool resets_memory = false;         // no row continues the previous batch, so carried memory must be discarded

  const at::Tensor& at(std::string_view name) const;  // throws Error naming the missing tensor
  at::Tensor find(std::string_view name) const;       // undefined if missing
  std::int64_t rows() const;
  std::int64_t n_targets() const;
  Batch narrow(std::int64_t begin, std::int64_t count) const;  // rows [begin, begin + count)
  Batch to(at::Device device) const;
};

// The state that a model carries from one batch to the next: [B, tokens, d] per layer, detached; empty: none.
struct Memory {
  std::vector<at::Tensor> layers;
  void reset() { layers.clear(); }
  Memory narrow(std::int64_t begin, std::int64_t count) const;  // rows [begin, begin + count)
  static Memory join(std::vector<Memory> parts);                // concatenates the rows of all parts
};

// Maximum memory per row: `layers` tensors of up to `length` tokens of `width` elements.
struct MemoryShape {
  std::int64_t layers = 0, length = 0, width = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  const config::ModelOptions& options() const { return parts_->options; }
  nn::Parameters& parameters() { return parts_->parameters; }
  const nn::Parameters& parameters() const { return parts_->parameters; }
  virtual at::Device device() const { return parameters().all().front().tensor.device(); }

  // Models with memory read `memory` and replace it with this batch's. Throws Error if the batch lacks a tensor.
  virtual Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const = 0;
  virtual MemoryShape memory_shape() const { return {}; }
  // Returns random values of the right shapes on the model's device, for benchmarks; a function of the seed.
  virtual Batch example(std::int64_t rows, std::uint64_t seed) const = 0;

 protected:
  // Derived models add their layers.
  struct Parts {
    virtual ~Parts() = default;
    config::ModelOptions options;
    nn::Parameters parameters;
  };
  // Throws UserError unless options.kind is `kind`.
  Model(std::unique_ptr<Parts> parts, const config::ModelOptions& options, config::ModelKind kind);
  Model(Model&&) noexcept = default;

  std::unique_ptr<Parts> parts_;
};

// Creates a model of the kind in the options. Throws UserError for options without an implementation.
std::unique_ptr<Model> make_model(const config::ModelOptions& options, const nn::ParameterSource& source);
std::unique_ptr<Model> make_model(const config::ModelOptions& options, std::uint64_t seed,
                                  at::TensorOptions tensor_options = at::kFloat);

}  // namespace headroom::models
