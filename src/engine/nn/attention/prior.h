// Weights of a mixture's components: fixed, learned by gradient, or replaced after each batch by their responsibilities
// (soft-E).
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::nn {

// Added to sums of responsibilities (soft E-step).
inline constexpr double kResponsibilityEpsilon = 1e-6;

// Letters: R components, G key heads, P positions of a whole source. Transformer-MGK section 2.
class MixturePrior {
 public:
  // Nothing where options.has_prior() is false. Parameter "prior" ([R], [R, G] or [R, G, P]) when learned by gradient;
  // buffer "prior" of the first R - 1 components with soft-E, the last one's being what is left to 1.
  MixturePrior(const config::AttentionOptions& options, std::int64_t n_positions, const Builder& build);

  // [R, G, 1 or n_keys] for keys that begin at `first_index` of the source; nothing: all 1.
  std::optional<at::Tensor> weights(std::int64_t first_index, const c10::SymInt& n_keys) const;

  // soft-E: reports to context.updates what replaces the buffer, the mean responsibilities pi_r exp(s_r) / sum of a
  // call's components s_r [B, H, T, S], whose keys begin at the source's first. Without `valid_queries`
  // [B, T], they are the last T of the keys' [B, S].
  void measure(const std::vector<at::Tensor>& components, const std::optional<at::Tensor>& valid_keys,
               const std::optional<at::Tensor>& valid_queries, const Context& context) const;
  bool updates() const { return update_ == config::PriorUpdate::soft_e && kind_ != config::Prior::none; }

 private:
  at::Tensor broadcast(const at::Tensor& table) const;  // to [*, G, P or 1]

  config::Prior kind_;
  config::PriorUpdate update_;
  config::SoftEPairs pairs_;
  bool clamp_;
  std::int64_t n_components_, n_heads_;
  at::Tensor table_;
};

}  // namespace headroom::nn
