#include "exact.h"
#include "headroom/cost/cost.h"
#include "supported.h"

namespace headroom::cost {

using namespace config;

namespace {

Exact attention_parameters(const AttentionOptions& a, Exact d) {
  const bool routed = a.projection == Projection::routed_heads;
  const Exact d_heads = d * a.d_head;  // one projection of one head
  Exact n = 0;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const bool source = which == 'k' || which == 'v';
    const Exact heads = source ? computed_kv_heads(a) : (routed ? a.n_experts : a.n_heads);
    n += heads * d_heads * (a.has_experts(which) ? a.n_experts : 1);
    if (a.bias) {
      n += which == 'o' ? d : heads * a.d_head;
    }
  }
  n += routed ? d * a.n_experts : d * a.n_experts * a.n_heads * a.n_selections();
  if (a.position == Position::relative) {
    n += d_heads * (routed ? 1 : a.n_heads);
  }
  n += a.position_bias ? Exact(2) * a.n_heads * a.d_head : 0;
  n += a.qk_norm ? Exact(2) * a.d_head : 0;
  n += a.scale == Scale::learned ? 1 : 0;
  return n;
}

Exact mlp_parameters(const MlpOptions& mlp, Exact d) {
  switch (mlp.kind) {
    case MlpKind::dense:
      return Exact(2) * d * mlp.d_hidden + (mlp.bias ? Exact(mlp.d_hidden) + d : 0);
    case MlpKind::gated:
      return Exact(3) * d * mlp.d_hidden + (mlp.bias ? Exact(2) * mlp.d_hidden + d : 0);
    case MlpKind::experts:
      return Exact(2) * d * mlp.n_experts * mlp.d_hidden + d * mlp.n_experts;
  }
  misuse("cost: model.mlp.kind has no parameter formula");
}

}  // namespace

std::int64_t count_parameters(const ModelOptions& model) {
  require_formula(model);
  const Exact d = model.d_model;
  const Exact norm = model.norm == Norm::layer ? d * 2 : d;
  Exact n = d * model.vocabulary_size * (model.tied_embeddings ? 1 : 2);
  n += model.head_bias ? model.vocabulary_size : 0;
  n += (d + 1) * static_cast<std::int64_t>(model.adaptive_cutoffs.size());  // one logit a class of rarer tokens
  n += model.attention.position == Position::learned ? d * model.context_length : 0;
  n += norm;  // behind the last layer
  n += Exact(model.n_layers) * (norm * 2 + attention_parameters(model.attention, d) + mlp_parameters(model.mlp, d));
  return n.value();
}

}  // namespace headroom::cost
