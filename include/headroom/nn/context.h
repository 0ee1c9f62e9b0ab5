// What a forward pass takes and what it reports, besides its tensors.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "headroom/config/run_options.h"
#include "headroom/nn/buffer_updates.h"
#include "headroom/nn/observer.h"

namespace headroom::nn {

// How often each expert was chosen: name "layer3.attention.select_in" -> counts [n_heads * n_experts] (int64).
using ExpertUsage = std::map<std::string, at::Tensor>;

// Where the random numbers of a call come from: see nn/random.h.
struct Randomness {
  std::uint64_t seed = 0;      // of (train.seed, step)
  std::int64_t first_row = 0;  // of the global batch that this call computes
  std::int64_t rows = 1;       // of this call: the axis, or the fold of axes, that its tensors begin with
};

struct Context {
  bool training = false;
  std::optional<Randomness> random;  // needed only while training with dropout or noise
  bool from_generator = false;       // instead of `random`: numbers of torch's own generator
  config::Implementation implementation = config::Implementation::automatic;
  // Matrix products run in this type; norms, softmax, residuals and losses stay in the parameters' type.
  std::optional<at::ScalarType> compute_dtype;
  // Decoding: rows are sequences, and each is computed as it would be alone, bit for bit (on the CPU).
  bool batch_invariant = false;
  // Decoding several sequences at once: products of all rows together instead, which are faster for many rows, while
  // rounding depends on how many there are.
  bool batched = false;
  std::string scope;  // in front of the names below: "layer3.attention."
  // Balance losses before their coefficients, by kind ("entropy"), summed over layers; filled when set.
  std::map<std::string, at::Tensor>* losses = nullptr;
  at::Tensor* token_losses = nullptr;  // evaluating: each counted target's cross-entropy in nats [N], filled when set
  ExpertUsage* usage = nullptr;        // added to when set
  BufferUpdates* updates = nullptr;    // added to while training when set
  Observer* observer = nullptr;        // handed the values that it wants

  Context in(const std::string& child) const {
    Context inner = *this;
    inner.scope += child + ".";
    return inner;
  }

  // Whether the observer wants the value of this name in the scope.
  bool wants(std::string_view name) const;
  // What is used in the place of `value`: itself unless the observer wants it. Throws Error where the observer returns
  // another shape, type or device.
  at::Tensor observe(std::string_view name, at::Tensor value) const;
  // The same for values that nothing else uses: computed by `make` only where it is wanted.
  template <class Make>
  void show(std::string_view name, const Make& make) const {
    if (wants(name)) {
      observe(name, make());
    }
  }
};

}  // namespace headroom::nn
