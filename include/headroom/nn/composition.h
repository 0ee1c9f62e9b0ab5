// How heads talk: maps across heads, fixed or computed from the tokens, before and after the softmax (DCMHA Eq. 3-8,
// App. D).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"
#include "headroom/ops/head_map.h"

namespace headroom::nn {

// Letters: B batch, n tokens, d d_model, H heads in C groups of m, R rank, I = 2 R m.
// Dynamic factors of a token x, for each stage and side: f = act(x W_1) W_2 as [2, R, m] a group; u_r = f_0r divided by
// sqrt(mean over the group's heads of f_0r^2 + 1e-6), w_r = f_1r; gate = tanh(x W_g).
class Composition {
 public:
  // Parameters "pre.q.w1" [C, d, I], "pre.q.w2" [C, I, 2, R, m], "pre.q.wg" [d, H], "pre.wb" [C, m, m], ...: stages pre
  // and post, sides q and k.
  Composition(const config::AttentionOptions& options, std::int64_t d_model, const Builder& build);

  // Everything that the key side contributes, [B, 1, n, F]: computed once a token and kept while decoding.
  at::Tensor key_factors(const at::Tensor& source, const Context& context) const;
  // F: (2 R H + H) a stage with both low rank and gates.
  std::int64_t n_key_factors() const;

  struct Maps {
    std::optional<ops::HeadMap> pre, post;
  };
  // The maps of queries x [B, T, d] and keys with these factors [B, 1, S, F].
  Maps maps(const at::Tensor& x, const at::Tensor& key_factors, const Context& context) const;

  // Fixed map, identity and key side of each stage as matrices [B, S, stages, H, H], for checks.
  at::Tensor key_maps(const at::Tensor& key_factors) const;

 private:
  struct Side {
    at::Tensor w1, w2, wg;
  };
  struct Stage {
    at::Tensor fixed;
    Side query, key;
  };

  Stage make_stage(std::int64_t d_model, const Builder& build) const;
  Side make_side(const char* name, std::int64_t d_model, const Builder& build) const;
  at::Tensor factors(const Side& side, const at::Tensor& x, const Context& context) const;  // [B, n, F of the side]
  ops::HeadMapSide map_of(const Side& side, at::Tensor factors) const;
  ops::HeadMap start(const Stage& stage) const;

  config::AttentionOptions options_;
  std::optional<Stage> pre_, post_;
};

}  // namespace headroom::nn
