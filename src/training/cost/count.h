// Counts what a model computes and caches, by running its reference layers on torch's meta device, where tensors have
// shapes and no values.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/core/exact.h"
#include "headroom/models/model.h"

namespace headroom::cost {

// Returns the model on the meta device. All functions in this header throw UserError if a size or a count does not fit
// 63 bits.
std::unique_ptr<models::Model> on_meta_device(const config::ModelOptions& options);

// Multiply-accumulates of the matrix multiplications in one layer: MLP, and attention (everything else).
struct LayerMacs {
  Exact attention = 0, mlp = 0;
  Exact pairs = 0;   // the part of `attention` that belongs to pairs of a query and a key
  Exact hidden = 0;  // the part of `pairs` that the causal mask or the window hides
};
struct ForwardMacs {
  std::vector<LayerMacs> layers;  // in order of computation: the encoder's before the decoder's
  Exact head = 0;                 // outside the layers
  LayerMacs sum() const;          // over all layers
};

// Counts a forward pass over `rows` sequences of context_length tokens with full memory.
ForwardMacs forward_macs(const models::Model& model, std::int64_t rows, bool training = false);

// Returns the elements that the caches of one sequence hold after the first token; 0 for kinds that do not generate.
Exact cached_elements(const models::Model& model);

}  // namespace headroom::cost
