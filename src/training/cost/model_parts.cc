#include "model_parts.h"

#include <algorithm>

namespace headroom::cost {

using namespace config;

Exact tokens_of(const ModelOptions& model) {
  return model.kind == ModelKind::vision ? model.patches() : model.context_length;
}

Exact patch_elements(const ModelOptions& model) {
  return Exact(model.patch_size) * model.patch_size * model.image_channels;
}

std::vector<Stack> stacks_of(const ModelOptions& model) {
  const Exact t = tokens_of(model);
  const bool decodes = model.kind == ModelKind::language_model;
  const AttentionExtent own{.queries = t, .sources = t + model.memory_length, .causal = decodes, .self = true};
  std::vector<Stack> stacks;
  for (const auto& [layer, count] : model.kinds_of_layers(model.n_layers)) {
    const std::int64_t repeats = model.n_layers / std::max<std::int64_t>(1, model.distinct_layers());
    stacks.push_back({.layers = count,
                      .distinct = count / std::max<std::int64_t>(1, repeats),
                      .tokens = t,
                      .spans = {own},
                      .attentions = {layer.attention},
                      .mlp = layer.mlp,
                      .norms = 2 * model.norms_per_sublayer()});
  }
  if (model.kind == ModelKind::encoder_decoder) {
    const AttentionExtent past{.queries = t, .sources = t, .causal = true, .self = true};
    const AttentionExtent other{.queries = t, .sources = t, .causal = false, .self = false};
    for (const auto& [layer, count] : model.kinds_of_layers(model.decoder_layers())) {
      stacks.push_back({.layers = count,
                        .distinct = count,
                        .tokens = t,
                        .spans = {past, other},
                        .attentions = {layer.attention, layer.attention.across_sequences()},
                        .mlp = layer.mlp,
                        .norms = 3 * model.norms_per_sublayer()});
    }
  }
  return stacks;
}

Exact outer_norms(const ModelOptions& model) {
  switch (model.kind) {
    case ModelKind::masked_language_model:
      return 3;  // after the embedding, after the last layer, in the head
    case ModelKind::encoder_decoder:
      return model.norm_position == NormPosition::pre ? 2 : 0;  // after the last layers; post-norm blocks end with one
    default:
      return 1;  // after the last layer
  }
}

namespace {

// relu saves only its result.
std::int64_t saved_by(Activation activation) {
  return activation == Activation::relu ? 1 : 2;
}

MlpParts expert_parts(const MlpOptions& mlp, Exact d) {
  const Exact hidden = mlp.d_hidden, one = d * hidden, n = mlp.n_experts, shared = d * mlp.d_shared;
  const std::int64_t inputs = mlp.expert_kind == ExpertKind::dense ? 1 : 2;  // matrices that read the token
  MlpParts parts{.matrices = Sizes(static_cast<std::size_t>(inputs + 1), one * n),
                 .others = {d * n},
                 .macs = d * n + one * (inputs + 1) * mlp.top_k + shared * 3,
                 .saved = hidden * mlp.top_k * (inputs == 1 ? saved_by(mlp.activation) : 4) + Exact(mlp.d_shared) * 4};
  parts.matrices = parts.matrices + Sizes(mlp.d_shared > 0 ? 3 : 0, shared);
  if (mlp.shared_gate) {
    parts.others.push_back(d);
    parts.macs = parts.macs + d;
    parts.saved = parts.saved + d + 2;  // the factors of the product, and the sigmoid
  }
  if (mlp.expert_bias == ExpertBias::hidden) {
    parts.others = parts.others + Sizes(static_cast<std::size_t>(inputs), hidden * n) + Sizes{d};
  } else if (mlp.expert_bias == ExpertBias::output) {
    parts.others.push_back(d);
  } else if (mlp.expert_bias == ExpertBias::all) {
    parts.others = parts.others + Sizes{n, d * n} + Sizes(static_cast<std::size_t>(inputs), hidden * n);
  }
  return parts;
}

}  // namespace

MlpParts mlp_parts(const MlpOptions& mlp, Exact d) {
  const Exact hidden = mlp.d_hidden, one = d * hidden;
  const std::int64_t saved = saved_by(mlp.activation);
  switch (mlp.kind) {
    case MlpKind::dense:
      return {.matrices = {one, one},
              .others = mlp.bias ? Sizes{hidden, d} : Sizes(),
              .macs = one * 2,
              .saved = hidden * saved};
    case MlpKind::gated: {
      const Exact groups = d * mlp.hidden_groups;
      const bool gates = mlp.hidden_groups > 0;  // another product, and the gates
      return {.matrices = {one, one, one},
              .others = (mlp.bias ? Sizes{hidden, hidden, d} : Sizes()) + Sizes(gates ? 1 : 0, groups),
              .macs = one * 3 + groups,
              .saved = gates ? hidden * 5 + mlp.hidden_groups : hidden * 4};
    }
    case MlpKind::experts:
      return expert_parts(mlp, d);
  }
  user_error("cost: model.mlp.kind has no cost formula");
}

AttentionProducts attention_products(const AttentionOptions& a, Exact d, const AttentionExtent& span) {
  const ProjectionProducts projected = a.projection->products(a, d, span);
  const Exact offsets = a.position->offsets(span) * a.d_head;
  return {.projections = projected.projections,
          .gates = span.queries * a.gate_output->inputs(a, d) * a.computed_heads() * a.gate_output->gates(a) +
                   a.position->products(a, d, span),
          .selection = projected.selection,
          .scores = a.score->products(a, d, span) + span.queries * offsets * a.attention_matrices(),
          .composition = a.composition->products(a, d, span),
          .positions = offsets * d * a.projection->position_heads(a),
          .noise = projected.noise};
}

namespace {

// Returns the number of query-key pairs that the mask allows. A query sees its own position and those before it, at
// most `window` positions.
Exact visible_pairs(const AttentionExtent& span, std::int64_t window) {
  if (!span.causal) {
    return span.queries * span.sources;
  }
  const std::int64_t t = span.queries.value(), s = span.sources.value(), w = window > 0 ? std::min(window, s) : s;
  const std::int64_t growing = std::max<std::int64_t>(0, w - (s - t));  // queries that see fewer than w keys, or just w
  const std::int64_t triangle = (Exact(growing) * (growing + 1)).value() / 2;
  return Exact(growing) * (s - t) + triangle + Exact(t - growing) * w;
}

}  // namespace

Exact masked_macs(const AttentionOptions& a, Exact d, const AttentionExtent& span) {
  if (!a.score->has_scores()) {
    return 0;
  }
  const auto products = [&](std::int64_t queries, std::int64_t sources) {
    AttentionExtent pairs = span;
    pairs.queries = queries;
    pairs.sources = sources;
    return (a.score->products(a, d, pairs) + a.composition->products(a, d, pairs)).value();
  };
  // The coefficient of the pairs: what remains of the products without the terms per query and per key.
  const std::int64_t per_pair = products(2, 2) - products(2, 1) - products(1, 2) + products(1, 1);
  const std::int64_t pairs = visible_pairs(span, a.window).value(), all = (span.queries * span.sources).value();
  const std::int64_t offsets = (span.queries * a.position->offsets(span)).value();
  return Exact(all - pairs) * per_pair +
         Exact(std::max<std::int64_t>(0, offsets - pairs)) * a.d_head * a.attention_matrices();
}

PaperTerms paper_output_gate(const AttentionOptions& a, const PaperSizes& z) {
  const Exact heads = z.t * a.computed_heads(), gates = heads * a.gate_output->gates(a);
  const Exact results = a.gate_output->gates(a) > 0 ? heads * a.value_width() : 0;
  return {.macs = gates * a.gate_output->inputs(a, z.d) + results, .memory = gates + results};
}

Sizes other_attention_tensors(const AttentionOptions& a, Exact d, Exact sources) {
  Sizes all = a.projection->other_tensors(a, d) + a.score->tensors(a, d, sources) + a.composition->tensors(a, d) +
              a.position->tensors(a, d);
  if (const Exact gates = Exact(a.projection->all_heads(a)) * a.gate_output->gates(a); gates.value() > 0) {
    all = all + Sizes{gates * a.gate_output->inputs(a, d)} + Sizes(a.bias ? 1 : 0, gates);
  }
  return all + Sizes(a.qk_norm ? 2 : 0, a.d_head) + Sizes(a.scale == Scale::learned ? 1 : 0, 1);
}

Exact attention_parameters(const AttentionOptions& a, Exact d, Exact sources) {
  return sum_of(a.projection->matrices(a, d)) + sum_of(other_attention_tensors(a, d, sources));
}

}  // namespace headroom::cost
