#include "exact.h"
#include "headroom/cost/cost.h"
#include "supported.h"

namespace headroom::cost {

using namespace config;

namespace {

struct Sizes {
  Exact t, s, d, h, kv, e, experts, k;  // s = C T
  bool relative;
};

PaperCost dense(const Sizes& z) {
  const Exact projections = (z.h + z.kv) * 2 * z.t * z.e;
  Exact macs = projections * z.d + z.t * z.s * 2 * z.h * z.e;
  Exact memory = projections + z.t * z.s * 2 * z.h;
  if (z.relative) {
    macs += z.s * 2 * z.d * z.h * z.e;
    memory += z.s * 2 * z.h * z.e;
  }
  return {macs.value(), memory.value()};
}

PaperCost experts(const AttentionOptions& a, const Sizes& z) {
  Exact macs = z.t * z.s * 2 * z.h * z.e;
  Exact memory = z.t * z.s * 2 * z.h;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const Exact rows = (which == 'k' || which == 'v' ? z.kv : z.h) * z.e * z.t;
    macs += a.has_experts(which) ? rows * z.k * (z.d + 1) : rows * z.d;  // + 1: the weighted average
    memory += rows;
  }
  macs += z.experts * a.n_selections() * z.d * z.s;
  memory += z.experts * a.n_selections() * z.s;
  if (z.relative) {
    macs += z.h * 2 * z.d * z.t * z.e;
    memory += z.h * 2 * z.t * z.e;
  }
  return {macs.value(), memory.value()};
}

PaperCost routed_heads(const Sizes& z) {
  const Exact projections = (z.h + 1) * 2 * z.e * z.t;
  Exact macs = z.t * z.s * 2 * z.h * z.e + projections * z.d + z.h * 2 * z.t * z.e + z.experts * z.d * z.t;
  Exact memory = z.t * z.s * 2 * z.h + projections + z.experts * z.s;
  if (z.relative) {
    macs += z.s * 2 * z.d * z.e;
    memory += z.t * 2 * z.e;
  }
  return {macs.value(), memory.value()};
}

}  // namespace

PaperCost paper_cost(const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  require_formula(a);
  const Sizes sizes{.t = model.context_length,
                    .s = Exact(model.context_length) + model.memory_length,
                    .d = model.d_model,
                    .h = a.n_heads,
                    .kv = computed_kv_heads(a),
                    .e = a.d_head,
                    .experts = a.n_experts,
                    .k = a.top_k,
                    .relative = a.position == Position::relative};
  if (a.projection == Projection::routed_heads) {
    return routed_heads(sizes);
  }
  return selects(a) ? experts(a, sizes) : dense(sizes);
}

}  // namespace headroom::cost
