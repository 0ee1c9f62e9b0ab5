#include "headroom/cost/cost.h"
#include "model_parts.h"

namespace headroom::cost {

using namespace config;

namespace {

struct Sizes {
  Exact t, s, d, h, kv, e, experts, k;  // s = C T
  bool relative;
};

struct Count {
  Exact macs = 0, memory = 0;
};

Count dense(const AttentionOptions& a, const Sizes& z) {
  const Exact projections = (z.h + z.kv) * 2 * z.t * z.e;
  Count count{.macs = projections * z.d, .memory = projections};
  if (z.relative) {
    count.macs += z.s * 2 * z.d * z.h * z.e;
    count.memory += z.s * 2 * z.h * z.e;
  }
  if (a.projection == Projection::gated_heads) {
    count.macs += z.h * z.d * z.t + z.h * z.t * z.e;
    count.memory += z.h * z.t;
  }
  return count;
}

Count experts(const AttentionOptions& a, const Sizes& z) {
  Count count;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const Exact rows = (which == 'k' || which == 'v' ? z.kv : z.h) * z.e * z.t;
    count.macs += a.has_experts(which) ? rows * z.k * (z.d + 1) : rows * z.d;  // + 1: the weighted average
    count.memory += rows;
  }
  count.macs += z.experts * a.n_selections() * z.d * z.s;
  count.memory += z.experts * a.n_selections() * z.s;
  if (z.relative) {
    count.macs += z.h * 2 * z.d * z.t * z.e;
    count.memory += z.h * 2 * z.t * z.e;
  }
  return count;
}

Count routed_heads(const Sizes& z) {
  const Exact projections = (z.h + 1) * 2 * z.e * z.t;
  Count count{.macs = projections * z.d + z.h * 2 * z.t * z.e + z.experts * z.d * z.t,
              .memory = projections + z.experts * z.s};
  if (z.relative) {
    count.macs += z.s * 2 * z.d * z.e;
    count.memory += z.t * 2 * z.e;
  }
  return count;
}

// Scores, weights, and the keys beyond one at each position.
Count scores(const AttentionOptions& a, const Sizes& z) {
  const Exact more_projections = a.key_projections() - 1, more_keys = a.key_components() - 1;
  const Exact one_key = z.kv * z.t * z.e;
  const Exact chosen = a.has_experts('k') ? z.k * (z.d + 1) : z.d;
  Count count{.macs = more_projections * one_key * chosen, .memory = more_keys * one_key};
  if (a.score == Score::linear) {
    count.macs += (z.s + z.t) * z.h * z.e * z.e;
    count.memory += (z.s + z.t) * z.h * z.e + z.h * z.e * z.e;
  } else {
    const Exact matrices = z.t * z.s * z.h * (Exact(a.key_components()) + 1);
    count.macs += matrices * z.e;
    count.memory += matrices;
  }
  return count;
}

Count composition(const AttentionOptions& a, const Sizes& z) {
  if (a.composition == Composition::none) {
    return {};
  }
  const Exact pairs = z.t * z.s;
  Count stage{.macs = a.has_static_map() ? pairs * z.h * heads_of_group(a) : 0, .memory = pairs * z.h};
  if (a.composition == Composition::dynamic) {
    for (const auto& [side, tokens] : {std::pair("query", z.t), std::pair("key", z.s)}) {
      const ComposeSide made = compose_side(a, z.d, side);
      stage.macs += made.factor_parameters * tokens;
      stage.memory += made.factors * tokens;
      if (made.low_rank) {
        stage.macs += pairs * z.h * a.compose_rank * 2;
        stage.memory += pairs * a.compose_groups * a.compose_rank + z.h * a.compose_rank * 2 * tokens;
      }
    }
  }
  return {.macs = stage.macs * compose_stages(a), .memory = stage.memory * compose_stages(a)};
}

}  // namespace

PaperCost paper_cost(const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  const Exact tokens = tokens_of(model);
  const Sizes sizes{.t = tokens,
                    .s = tokens + model.memory_length,
                    .d = model.d_model,
                    .h = a.n_heads,
                    .kv = a.computed_kv_heads(),
                    .e = a.d_head,
                    .experts = a.n_experts,
                    .k = a.top_k,
                    .relative = a.position == Position::relative};
  const bool selects = a.selects_source() || a.selects_destination();
  const Count projected = is_routed(a) ? routed_heads(sizes) : selects ? experts(a, sizes) : dense(a, sizes);
  const Count scored = scores(a, sizes), composed = composition(a, sizes);
  return {.attention_macs = (projected.macs + scored.macs + composed.macs).value(),
          .attention_memory = (projected.memory + scored.memory + composed.memory).value()};
}

}  // namespace headroom::cost
