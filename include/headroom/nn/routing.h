// Routing tokens to k experts: scores, top-k, gate weights (SwitchHead, section 2.2; sigma-MoE), and the losses that
// balance the load.
//
// Letters: B batch, N = B T tokens, H heads, E experts per head, K routed experts.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <string>

#include "headroom/config/attention_options.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/context.h"

namespace headroom::nn {

struct Routing {
  at::Tensor score;   // [N, H, E], in the parameters' type
  at::Tensor index;   // [N, H, K] int64, expert within its head, in descending order of score
  at::Tensor weight;  // [N, H, K] gate weights, in the parameters' type; differentiable

  // Returns indices into a bank of all heads' experts, [H * E, ...].
  at::Tensor bank_index() const;
  // Returns the same indices as H K heads with one expert each, [N, H * K, 1].
  at::Tensor slots() const;
  // Returns the routing of one head, H = 1.
  Routing of_head(std::int64_t head) const;
  // Returns rows [begin, begin + count) of a [B, rows] batch.
  Routing narrow(const c10::SymInt& batch, const c10::SymInt& begin, const c10::SymInt& count) const;
  // Returns the routing in the order of `other` [N, H, K]; experts in `other` that are not routed to have weight 0.
  Routing in_order_of(const at::Tensor& other) const;
};

// Added to the sum of the routed experts' probabilities before dividing by it.
inline constexpr double kRenormaliseEpsilon = 1e-6;
// Minimum standard deviation of the noise of noisy routing, from MoA's released code. Eq. 3 has none.
inline constexpr double kNoiseFloor = 0.01;

struct RoutingOptions {
  std::int64_t n_heads = 1, n_experts = 1, top_k = 1;
  config::Gate gate = config::Gate::sigmoid;
  double expert_dropout = 0.0;
  bool zero_dropped = false;        // sigma-MoE: a dropped expert that is routed to anyway has weight 0
  std::optional<at::Tensor> valid;  // [N] bool; other tokens have weight 0
};

// Returns the options of `n_heads` routers that choose among the layer's experts.
RoutingOptions routing_options(const config::AttentionOptions& options, std::int64_t n_heads);
// Returns `options` for padded tokens: `valid` is [B, T] bool; not set: no padding.
RoutingOptions with_padding(RoutingOptions options, const std::optional<at::Tensor>& valid);

// Gate weights [N, H, K] of the routed experts `index`, with scores s:
//   sigmoid               sigmoid(s_e)
//   softmax_top_k         softmax over the routed experts
//   softmax               p_e of the softmax over all of the head's experts
//   softmax_renormalised  p_e / (sum of the routed p + 1e-6), the sum a constant in the derivative (MoA Eq. 9)
at::Tensor gate_weights(const at::Tensor& score, const at::Tensor& index, config::Gate gate);

// Routes by scores [N, H, E]. The weights are differentiable; the top-k indices are not. Counts are added to
// context.usage under `name`; the observer gets score, index and weight.
Routing route_scores(const at::Tensor& score, const RoutingOptions& options, const Context& context,
                     const std::string& name);
// Routes by the scores x w, with x [N, d] and w [d, H, E], in at least the parameters' precision.
Routing route_tokens(const at::Tensor& x, const at::Tensor& w, const RoutingOptions& options, const Context& context,
                     const std::string& name);

// Balance losses (MoA Eq. 10-13; SwitchHead's sigma-MoE entropy) over the `valid` tokens [N], by default all, with
// n1(a) = a / sum(a) and p = softmax(s), 0 for padding. MoA's released code counts padding in `z` and `switch_slots`.
//   switch        E sum_e P_e F_e, P = n1(sum of p), F = n1(tokens per expert), the counts a constant
//   switch_slots  switch with F as in MoA's released code: entry s < k counts the distinct pairs (sequence, expert) in
//                 slot s
//   cv            unbiased variance / (mean^2 + 1e-10) of n1(sum of weights)
//   z             mean over tokens of logsumexp(s)^2
//   entropy       sum_e m_e log m_e, m = mean over tokens of softmax(s)
at::Tensor switch_loss(const at::Tensor& prob, const at::Tensor& counts);  // [N, E], [E]
at::Tensor slot_counts(const at::Tensor& index, const c10::SymInt& batch, std::int64_t n_experts,
                       const std::optional<at::Tensor>& valid = std::nullopt);                      // [N, k] to [E]
at::Tensor cv_loss(const at::Tensor& weights);                                                      // [N, E]
at::Tensor z_loss(const at::Tensor& score, const std::optional<at::Tensor>& valid = std::nullopt);  // [N, E]
at::Tensor entropy_loss(const at::Tensor& score, const std::optional<at::Tensor>& valid = std::nullopt);  // [N, E]

// Returns the number of valid tokens that the router, H = 1, sends to each expert, [E].
at::Tensor tokens_per_expert(const Routing& routing, const std::optional<at::Tensor>& valid);

// Adds the losses whose coefficient is above 0 to context.losses, summed over the H routers, under the names above
// (entropy: "routing_entropy").
void add_routing_losses(const Routing& routing, const std::optional<at::Tensor>& valid, const c10::SymInt& batch,
                        const config::RoutedHeadOptions& options, const Context& context);
// context.losses[kind] += value.
void add_loss(const Context& context, const std::string& kind, const at::Tensor& value);

}  // namespace headroom::nn
