// Losses that keep a router's choices in balance (MoA Eq. 10-13; SwitchHead's sigma-MoE entropy).
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/selection.h"

namespace headroom::nn {

// Letters: N = B T tokens, E experts, k chosen. n1(a) = a / sum(a).
//   switch        E sum_e P_e F_e, P = n1(sum of p), F = n1(tokens that chose e), the counts a constant
//   switch_slots  the same with F as MoA's released code has it: entry s < k counts the distinct pairs (sequence,
//                 expert) in slot s
//   cv            unbiased variance / (mean^2 + 1e-10) of n1(sum of weights)
//   z             mean over all tokens of logsumexp(s)^2
//   entropy       sum_e m_e log m_e, m = mean over tokens of softmax(s)
// p is softmax(s), 0 for tokens that are not `valid` [N].
at::Tensor switch_loss(const at::Tensor& prob, const at::Tensor& counts);                           // [N, E], [E]
at::Tensor slot_counts(const at::Tensor& index, const c10::SymInt& batch, std::int64_t n_experts);  // [N, k] to [E]
at::Tensor cv_loss(const at::Tensor& weights);                                                      // [N, E]
at::Tensor z_loss(const at::Tensor& score);                                                         // [N, E]
at::Tensor entropy_loss(const at::Tensor& score);                                                   // [N, E]

// Tokens that chose each expert, [E], leaving out those that are not valid.
at::Tensor choice_counts(const Selection& chosen, const std::optional<at::Tensor>& valid);

// Adds those with a coefficient above 0 to context.losses, by the names above ("routing_entropy" for the last).
void add_routing_losses(const Selection& chosen, const std::optional<at::Tensor>& valid, const c10::SymInt& batch,
                        const config::AttentionOptions& options, const Context& context);

// loss += value under `kind`.
void add_loss(const Context& context, const std::string& kind, const at::Tensor& value);

}  // namespace headroom::nn
