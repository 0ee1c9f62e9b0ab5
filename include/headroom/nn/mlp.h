// The feed-forward half of a block: dense, gated (SwiGLU) or a mixture of experts (sigma-MoE).
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <optional>

#include "headroom/config/model_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::nn {

// dense:   y = act(x W_up + b_up) W_down + b_down
// gated:   y = (act(x W_gate + b_gate) * (x W_up + b_up)) W_down + b_down
// experts: y = sum over the top k of s of sigmoid(s_e) act(x W_up^e) W_down^e,  s = x W_select
//          (SwitchHead, section 2.3); balance loss "entropy" = sum_e m_e log m_e, m = mean over the valid tokens of
//          softmax(s)
class Mlp {
 public:
  virtual ~Mlp() = default;
  // Maps [B, T, d] to [B, T, d] in the compute type. hidden_dropout applies to the hidden layer of dense and gated
  // MLPs. Tokens are routed to experts by `routed_by` [B, T, d]; undefined: by x. Tokens that are not `valid` [B, T]
  // (not set: all are valid) are not routed; their output is unspecified.
  virtual at::Tensor operator()(const at::Tensor& x, double hidden_dropout, const Context& context,
                                const at::Tensor& routed_by = {},
                                const std::optional<at::Tensor>& valid = std::nullopt) const = 0;
};

std::unique_ptr<Mlp> make_mlp(const config::MlpOptions& options, const LayerInit& init, const Builder& build);

}  // namespace headroom::nn
