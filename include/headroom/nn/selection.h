// Choosing k experts a token: scores, top-k, gate weights (SwitchHead section 2.2; sigma-MoE).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"

namespace headroom::nn {

// Letters: N tokens, H heads, E experts a head, K chosen.
struct Selection {
  at::Tensor score;   // [N, H, E], in the parameters' type
  at::Tensor index;   // [N, H, K] int64, expert within its head, in decreasing score
  at::Tensor weight;  // [N, H, K] in the parameters' type; differentiable

  // Positions in a bank of all heads' experts, [H * E, ...].
  at::Tensor bank_index() const;
  // The same choices for rows [begin, begin + count) of a [B, rows] batch.
  Selection narrow(const c10::SymInt& batch, const c10::SymInt& begin, const c10::SymInt& count) const;
  // The same choices in the order of `other` [N, H, K]; an expert in it that was not chosen has weight 0.
  Selection in_order_of(const at::Tensor& other) const;
};

// Added to the sum of the chosen experts' probabilities before it divides them.
inline constexpr double kRenormaliseEpsilon = 1e-6;
// The least standard deviation of noisy selection's noise (MoA Eq. 3).
inline constexpr double kNoiseFloor = 0.01;

struct SelectionOptions {
  std::int64_t n_heads = 1, n_experts = 1, top_k = 1;
  config::Gate gate = config::Gate::sigmoid;
  double expert_dropout = 0.0;
  bool dropped_weigh_nothing = false;  // sigma-MoE: a dropped expert that is chosen nevertheless has weight 0
  std::optional<at::Tensor> valid;     // [N] bool: other tokens choose nothing, their weights are 0
};

// Weights [N, H, K] of the chosen `index`, by `gate` (score s_e):
//   sigmoid               sigmoid(s_e)
//   softmax_top_k         softmax over the chosen
//   softmax               p_e of the softmax over all of the head's experts
//   softmax_renormalised  p_e / (sum of the chosen p + 1e-6), the sum a constant in the derivative (MoA Eq. 9)
at::Tensor gate_weights(const at::Tensor& score, const at::Tensor& index, config::Gate gate);

// The choice has no derivative, the weights have. Counts go to context.usage under `name`, score, index and weight are
// shown to context.observer. `score` is [N, H, E].
Selection choose_experts(const at::Tensor& score, const SelectionOptions& options, const Context& context,
                         const std::string& name);

// The same with scores x [N, d] times w [d, H, E], never in less than the parameters' precision.
Selection select_experts(const at::Tensor& x, const at::Tensor& w, const SelectionOptions& options,
                         const Context& context, const std::string& name);

}  // namespace headroom::nn
