// What a trainer knows of a model, whatever its kind: options, parameters, and the loss of a batch.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/models/loss.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::models {

// Examples, a row each: the first axis of every tensor. Which tensors a model reads is described at its loss().
struct Batch {
  std::map<std::string, at::Tensor, std::less<>> tensors;
  std::vector<std::int64_t> targets;  // predictions of each row that the loss is a mean over
  std::int64_t tokens = 0;            // positions that the model reads, all rows together: what its speed counts
  double label_smoothing = 0.0;       // share of each target's probability that the loss spreads evenly
  bool starts_afresh = false;         // no row continues the previous batch's: any carried memory must be discarded

  const at::Tensor& at(std::string_view name) const;  // throws Error naming it
  at::Tensor find(std::string_view name) const;       // undefined where there is none
  std::int64_t rows() const;
  std::int64_t n_targets() const;
  Batch narrow(std::int64_t begin, std::int64_t count) const;  // some of the rows
  Batch to(at::Device device) const;
};

// What a model carries from one batch to the next, a tensor a layer [B, tokens, d], detached; empty: nothing.
struct Memory {
  std::vector<at::Tensor> layers;
  void forget() { layers.clear(); }
  Memory narrow(std::int64_t begin, std::int64_t count) const;  // of some of the rows
  static Memory join(std::vector<Memory> parts);                // of the rows of all parts, in their order
};

// How large a model's memory may be for each row: so many layers of up to `length` tokens, each `width` numbers.
struct MemoryShape {
  std::int64_t layers = 0, length = 0, width = 0;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const config::ModelOptions& options() const = 0;
  virtual nn::Parameters& parameters() = 0;
  virtual const nn::Parameters& parameters() const = 0;

  // Reads `memory` and leaves this batch's there, in models that have one. Throws Error when the batch lacks a tensor.
  virtual Loss loss(const Batch& batch, Memory& memory, const nn::Context& context) const = 0;
  virtual MemoryShape memory_shape() const { return {}; }
  // Random content of the right shapes on the model's device, for benchmarks and trials: the same for the same seed.
  virtual Batch example(std::int64_t rows, std::uint64_t seed) const = 0;

  at::Device device() const { return parameters().all().front().tensor.device(); }
};

// The kind that the options name; `seed` fixes every parameter. Throws UserError for options without an
// implementation.
std::unique_ptr<Model> make_model(const config::ModelOptions& options, const nn::Beginning& beginning);
std::unique_ptr<Model> make_model(const config::ModelOptions& options, std::uint64_t seed,
                                  at::TensorOptions tensor_options = at::kFloat);

}  // namespace headroom::models
