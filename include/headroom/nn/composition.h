// How heads mix: maps across heads, fixed or computed from the tokens, before and after the softmax (DCMHA Eq. 3-8,
// App. D).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "headroom/config/attention_options.h"
#include "headroom/nn/context.h"
#include "headroom/nn/factory.h"
#include "headroom/nn/parameters.h"
#include "headroom/ops/head_map.h"

namespace headroom::nn {

// Letters: B batch, T queries, S sources, d d_model, H heads, F numbers of a token.
class Composition {
 public:
  virtual ~Composition() = default;

  // Everything that the key side contributes, [B, 1, n, F]: computed once a token and kept while decoding.
  virtual at::Tensor key_factors(const at::Tensor& source, const Context& context) const = 0;

  struct Maps {
    std::optional<ops::HeadMap> pre, post;
  };
  // The maps of queries x [B, T, d] and keys with these factors [B, 1, S, F].
  virtual Maps maps(const at::Tensor& x, const at::Tensor& key_factors, const Context& context) const = 0;
};

// Fixed map, identity and one side of each stage as matrices from head to head: [B, S, stages, H, H] of the key side,
// [B, T, stages, H, H] of the query side. For `n_heads` = H and maps that have factors.
enum class MapSide { query, key };
at::Tensor head_matrices(const Composition::Maps& maps, MapSide side, std::int64_t n_heads);
// What one side alone adds to the fixed map and the identity, its two terms apart: [B, n, stages, 2, H, H], the
// low-rank map and then the gates, from head, to head; 0 where a side lacks one.
at::Tensor head_terms(const Composition::Maps& maps, MapSide side, std::int64_t n_heads);

// Null where heads do not mix.
using MakeComposition = std::unique_ptr<Composition> (*)(const config::AttentionOptions& options, std::int64_t d_model,
                                                         const Builder& build);

}  // namespace headroom::nn
