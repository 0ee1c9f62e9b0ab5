// Settings and side outputs of a forward pass, passed down through all layers.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/config/run_options.h"
#include "headroom/nn/observer.h"

namespace headroom::nn {

// How many tokens were routed to each expert: "layer3.attention.select_in" -> counts [n_heads * n_experts] int64.
using ExpertUsage = std::map<std::string, at::Tensor>;

// buffer <- sum / (count + epsilon) where count > 0. A forward pass reports sums and counts; the training step applies
// them once for the whole batch, so the result does not depend on how the batch is split.
struct BufferUpdate {
  at::Tensor buffer;
  at::Tensor sum;    // shaped like buffer
  at::Tensor count;  // broadcasts to buffer
  double epsilon = 0.0;
};
using BufferUpdates = std::map<std::string, BufferUpdate>;  // by name of the buffer

// Adds the sum and count of a part of the batch.
void report(BufferUpdates& updates, const std::string& name, const BufferUpdate& update);
// Writes the buffers.
void apply(const BufferUpdates& updates);

// Seed and row range of a call's random numbers; see random.h.
struct Randomness {
  std::uint64_t seed = 0;      // derived from (train.seed, step)
  std::int64_t first_row = 0;  // index in the global batch
  std::int64_t rows = 1;       // number of rows in this call: the size of its tensors' leading axis or axes
};

struct Context {
  bool training = false;
  std::optional<Randomness> random;  // required while training with dropout or noise
  bool from_generator = false;       // draw from torch's global generator instead of `random`
  config::Implementation implementation = config::Implementation::automatic;
  // Type of matrix multiplications; norms, softmax, residuals and losses use the parameters' type.
  std::optional<at::ScalarType> compute_dtype;
  // Decoding: on the CPU, each row (sequence) gets the same bits as if it were decoded alone.
  bool batch_invariant = false;
  // Decoding several sequences: one matmul for all rows instead. Faster for many rows, but rounding depends on their
  // number.
  bool batched = false;
  // Scoring a text with a language model: on the CPU with fused operators, each token gets the same bits however the
  // text is divided into batches and pieces. Slower for a few tokens than the decode path, which rounds differently.
  // With linear attention the pieces still affect rounding, because its sums are carried from piece to piece.
  bool split_invariant = false;
  std::string scope;  // prefix of the names below: "layer3.attention."

  // Outputs, collected if not null.
  std::map<std::string, at::Tensor>* losses = nullptr;  // balance losses before their coefficients, by kind
                                                        // ("entropy"), summed over layers
  at::Tensor* token_losses = nullptr;                   // evaluation: cross-entropy of each target in nats [N]
  ExpertUsage* usage = nullptr;
  BufferUpdates* updates = nullptr;  // only in training
  Observer* observer = nullptr;

  Context in(const std::string& child) const {
    Context inner = *this;
    inner.scope += child + ".";
    return inner;
  }

  // Whether the observer wants the value of this name in the scope.
  bool wants(std::string_view name) const;
  // Returns the observer's replacement of `value`, or `value` if it is not wanted. Throws Error if the replacement has
  // a different shape, type or device.
  at::Tensor observe(std::string_view name, at::Tensor value) const;
  // Passes make() to the observer if it wants this name; the forward pass does not use the result.
  template <class Make>
  void show(std::string_view name, const Make& make) const {
    if (wants(name)) {
      observe(name, make());
    }
  }
};

}  // namespace headroom::nn
