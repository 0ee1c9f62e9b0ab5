#include "model_parts.h"

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
                      .norms = 2});
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
                        .norms = 3});
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

MlpParts mlp_parts(const MlpOptions& mlp, Exact d) {
  const Exact hidden = mlp.d_hidden, one = d * hidden;
  const std::int64_t saved = mlp.activation == Activation::relu ? 1 : 2;  // relu: only its result
  switch (mlp.kind) {
    case MlpKind::dense:
      return {.matrices = {one, one},
              .others = mlp.bias ? Sizes{hidden, d} : Sizes(),
              .macs = one * 2,
              .saved = hidden * saved};
    case MlpKind::gated:
      return {.matrices = {one, one, one},
              .others = mlp.bias ? Sizes{hidden, hidden, d} : Sizes(),
              .macs = one * 3,
              .saved = hidden * 4};
    case MlpKind::experts:
      return {.matrices = {one * mlp.n_experts, one * mlp.n_experts},
              .others = {d * mlp.n_experts},
              .macs = d * mlp.n_experts + one * 2 * mlp.top_k,
              .saved = hidden * mlp.top_k * saved};
  }
  user_error("cost: model.mlp.kind has no cost formula");
}

AttentionProducts attention_products(const AttentionOptions& a, Exact d, const AttentionExtent& span) {
  const ProjectionProducts projected = a.projection->products(a, d, span);
  const Exact offsets = a.position->offsets(span) * a.d_head;
  return {.projections = projected.projections,
          .gates = span.queries * d * a.n_heads * a.gate_output->gates(a),
          .selection = projected.selection,
          .scores = a.score->products(a, span) + span.queries * offsets * a.attention_matrices(),
          .composition = a.composition->products(a, d, span),
          .positions = offsets * d * a.projection->position_heads(a),
          .noise = projected.noise};
}

PaperTerms paper_output_gate(const AttentionOptions& a, const PaperSizes& z) {
  const Exact heads = z.t * a.n_heads, gates = heads * a.gate_output->gates(a);
  const Exact results = a.gate_output->gates(a) > 0 ? heads * a.value_width() : 0;
  return {.macs = gates * z.d + results, .memory = gates + results};
}

Sizes other_attention_tensors(const AttentionOptions& a, Exact d, Exact sources) {
  Sizes all = a.projection->other_tensors(a, d) + a.score->tensors(a, sources) + a.composition->tensors(a, d) +
              a.position->tensors(a, d);
  if (const Exact gates = Exact(a.projection->all_heads(a)) * a.gate_output->gates(a); gates.value() > 0) {
    all = all + Sizes{gates * d} + Sizes(a.bias ? 1 : 0, gates);
  }
  return all + Sizes(a.qk_norm ? 2 : 0, a.d_head) + Sizes(a.scale == Scale::learned ? 1 : 0, 1);
}

Exact attention_parameters(const AttentionOptions& a, Exact d, Exact sources) {
  return sum_of(a.projection->matrices(a, d)) + sum_of(other_attention_tensors(a, d, sources));
}

}  // namespace headroom::cost
