// Keys that are mixtures of several components at each position (Transformer-MGK): shifted keys and mixture priors, for
// the scores `gaussian_mixture` and `linear`.
//
// Letters: R components, G key/value heads, P positions of a whole source, e d_head.
#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {

// Shifted keys: component r's key is the projected key minus a learned vector (sMGK, Transformer-MGK Eq. 12).
class KeyShift {
 public:
  // Parameter "shift" [R, G, e] with keys = "shifted", otherwise none. Component 1 starts at 0, the others are normal.
  KeyShift(const config::AttentionOptions& options, const Builder& build);

  // Returns [R, G, 1 or n_keys, e], to be subtracted from the keys at positions from `first_position` on, rotated by
  // `rotary` if given. Not set if keys are not shifted.
  std::optional<at::Tensor> of_keys(const c10::SymInt& n_keys, std::int64_t first_position,
                                    const std::optional<Rotary>& rotary) const;

 private:
  at::Tensor shift_;
};

// Added to sums of responsibilities (soft E-step).
inline constexpr double kResponsibilityEpsilon = 1e-6;

// Weights of the components (Transformer-MGK, section 2): fixed, learned by gradient, or set after each batch to the
// mean responsibilities (soft-E).
class MixturePrior {
 public:
  // Has a parameter "prior" ([R], [R, G] or [R, G, P]) if learned by gradient; with soft-E, a buffer "prior" of the
  // first R - 1 components (the last is 1 minus their sum); neither if MixtureOptions::has_prior() is false.
  MixturePrior(const config::AttentionOptions& options, std::int64_t n_positions, const Builder& build);

  // Returns [R, G, 1 or n_keys] for keys from `first_index` of the source; not set if all are 1. Throws Error for keys
  // beyond P.
  std::optional<at::Tensor> weights(std::int64_t first_index, const c10::SymInt& n_keys) const;

  // soft-E: reports to context.updates the mean responsibilities pi_r exp(s_r) / sum_r of a call's components s_r [B,
  // H, T, S]. The call's keys must start with the source's first key. `valid_queries` is [B, T]; default: the last T of
  // `valid_keys` [B, S].
  void measure(const std::vector<at::Tensor>& components, const std::optional<at::Tensor>& valid_keys,
               const std::optional<at::Tensor>& valid_queries, const Context& context) const;
  bool updates() const { return options_.prior_update == config::PriorUpdate::soft_e && kind_ != config::Prior::none; }

 private:
  at::Tensor broadcast(const at::Tensor& table) const;  // to [*, G, P or 1]

  config::MixtureOptions options_;
  config::Prior kind_;  // none: all weights are 1
  std::int64_t n_heads_;
  at::Tensor table_;
};

}  // namespace headroom::nn
