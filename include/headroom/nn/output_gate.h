// What multiplies the heads' results before the output projection, computed from the queries' tokens.
#pragma once

#include <ATen/ATen.h>

#include <memory>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/factory.h"
#include "headroom/nn/parameters.h"
#include "headroom/nn/projection.h"

namespace headroom::nn {

class OutputGate {
 public:
  virtual ~OutputGate() = default;
  // Of the queries x [B, T, d]: [B, H, T, 1 or w] in the compute type.
  virtual at::Tensor operator()(const at::Tensor& x, const Heads& heads, const Context& context) const = 0;
};

// Null where there is none.
using MakeOutputGate = std::unique_ptr<OutputGate> (*)(const config::AttentionOptions& options, const LayerInit& init,
                                                       const Builder& build);

}  // namespace headroom::nn
