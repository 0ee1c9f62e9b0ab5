#include "exact.h"
#include "headroom/cost/cost.h"
#include "supported.h"

namespace headroom::cost {

using namespace config;

namespace {

// Scores of the experts, for one sequence.
Exact selection_macs(const AttentionOptions& a, Exact t, Exact s, Exact d) {
  if (a.projection == Projection::routed_heads) {
    return d * a.n_experts * t;
  }
  const Exact source = a.selects_source() ? s : 0, destination = a.selects_destination() ? t : 0;
  // Shared: the current tokens are among the source tokens.
  const bool once = a.shared_selection && a.selects_source();
  return d * a.n_experts * a.n_heads * (once ? source : source + destination);
}

// One layer and sequence, without the projection of the positions.
Exact attention_macs(const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  const Exact t = model.context_length, s = t + model.memory_length, d = model.d_model, e = a.d_head;
  Exact macs = selection_macs(a, t, s, d);
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const bool source = which == 'k' || which == 'v';
    const Exact rows = source ? s * computed_kv_heads(a) : t * a.n_heads;
    macs += rows * d * e * (a.has_experts(which) ? a.top_k : 1);
  }
  const Exact matrix = t * s * e * a.n_heads;
  return macs + matrix * (a.position == Position::relative ? 3 : 2);
}

// One layer: the offsets -(S-1) .. 0, whatever the batch.
Exact position_macs(const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  if (a.position != Position::relative) {
    return 0;
  }
  const Exact s = Exact(model.context_length) + model.memory_length;
  return s * model.d_model * a.d_head * (a.projection == Projection::routed_heads ? 1 : a.n_heads);
}

Exact mlp_macs(const ModelOptions& model) {
  const MlpOptions& mlp = model.mlp;
  const Exact td = Exact(model.context_length) * model.d_model;
  switch (mlp.kind) {
    case MlpKind::dense:
      return td * 2 * mlp.d_hidden;
    case MlpKind::gated:
      return td * 3 * mlp.d_hidden;
    case MlpKind::experts:
      return td * mlp.n_experts + td * 2 * mlp.top_k * mlp.d_hidden;
  }
  misuse("cost: model.mlp.kind has no cost formula");
}

}  // namespace

ExecutedCost executed_cost(const ModelOptions& model, std::int64_t batch) {
  require_formula(model);
  if (batch < 1) {
    misuse("cost: the batch must be at least 1 sequence, got {}", batch);
  }
  const Exact layers = model.n_layers;
  const Exact attention = layers * attention_macs(model);
  const Exact positions = layers * position_macs(model);
  const Exact mlp = layers * mlp_macs(model);
  const Exact classes = static_cast<std::int64_t>(model.adaptive_cutoffs.size());
  const Exact head = Exact(model.context_length) * model.d_model * (classes + model.vocabulary_size);
  const Exact step = ((attention + mlp + head) * batch + positions) * 3;
  return {.attention_macs = (attention + positions).value(),
          .mlp_macs = mlp.value(),
          .head_macs = head.value(),
          .step_macs = step.value()};
}

}  // namespace headroom::cost
