#include "model_parts.h"

namespace headroom::cost {

using namespace config;

Exact tokens_of(const ModelOptions& model) {
  return model.kind == ModelKind::vision ? model.patches() : model.context_length;
}

Exact patch_numbers(const ModelOptions& model) {
  return Exact(model.patch_size) * model.patch_size * model.image_channels;
}

std::vector<Stack> stacks_of(const ModelOptions& model) {
  const AttentionOptions& a = model.attention;
  const Exact t = tokens_of(model);
  const bool decodes = model.kind == ModelKind::language_model;
  const AttentionExtent own{.queries = t, .sources = t + model.memory_length, .causal = decodes, .self = true};
  std::vector<Stack> stacks = {{.layers = model.n_layers, .tokens = t, .spans = {own}, .attentions = {a}, .norms = 2}};
  if (model.kind == ModelKind::encoder_decoder) {
    const AttentionExtent past{.queries = t, .sources = t, .causal = true, .self = true};
    const AttentionExtent other{.queries = t, .sources = t, .causal = false, .self = false};
    stacks.push_back({.layers = model.decoder_layers(),
                      .tokens = t,
                      .spans = {past, other},
                      .attentions = {a, a.across_sequences()},
                      .norms = 3});
  }
  return stacks;
}

Exact outer_norms(const ModelOptions& model) {
  switch (model.kind) {
    case ModelKind::masked_language_model:
      return 3;  // of the embedding, after the last layer, in the head
    case ModelKind::encoder_decoder:
      return model.norm_position == NormPosition::pre ? 2 : 0;  // after the last layers; post-norm blocks end with one
    default:
      return 1;  // after the last layer
  }
}

}  // namespace headroom::cost
