#include "headroom/cost/cost.h"
#include "model_parts.h"

namespace headroom::cost {

using namespace config;

namespace {

Exact mlp_matrices(const MlpOptions& mlp, Exact d) {
  switch (mlp.kind) {
    case MlpKind::dense:
      return Exact(2) * d * mlp.d_hidden;
    case MlpKind::gated:
      return Exact(3) * d * mlp.d_hidden;
    case MlpKind::experts:
      return Exact(2) * d * mlp.n_experts * mlp.d_hidden;
  }
  misuse("cost: model.mlp.kind has no matrix formula");
}

Exact mlp_parameters(const MlpOptions& mlp, Exact d) {
  const Exact matrices = mlp_matrices(mlp, d);
  switch (mlp.kind) {
    case MlpKind::dense:
      return matrices + (mlp.bias ? Exact(mlp.d_hidden) + d : 0);
    case MlpKind::gated:
      return matrices + (mlp.bias ? Exact(2) * mlp.d_hidden + d : 0);
    case MlpKind::experts:
      return matrices + d * mlp.n_experts;
  }
  misuse("cost: model.mlp.kind has no parameter formula");
}

Exact embedding_parameters(const ModelOptions& model, Exact d) {
  if (model.kind == ModelKind::vision) {
    return patch_numbers(model) * d + d;
  }
  return d * model.vocabulary_size;
}

Exact vocabulary_head(const ModelOptions& model, Exact d) {
  Exact n = model.tied_embeddings ? 0 : d * model.vocabulary_size;
  n += model.head_bias ? model.vocabulary_size : 0;
  n += (d + 1) * static_cast<std::int64_t>(model.adaptive_cutoffs.size());  // one logit a class of rarer tokens
  // A masked language model's head begins with a layer of its own.
  return n + (model.kind == ModelKind::masked_language_model ? d * d + d : 0);
}

Exact class_head(const ModelOptions& model) {
  Exact n = 0, width = features_of(model);
  if (model.d_head_hidden > 0) {
    n += (width + 1) * model.d_head_hidden;
    width = model.d_head_hidden;
  }
  return n + width * model.n_classes + (model.head_bias ? model.n_classes : 0);
}

}  // namespace

std::int64_t count_parameters(const ModelOptions& model) {
  const Exact d = model.d_model;
  const Exact norm = model.norm == Norm::layer ? d * 2 : d;
  Exact n = embedding_parameters(model, d) + outer_norms(model) * norm;
  n += model.has_classes() ? class_head(model) : vocabulary_head(model, d);
  const bool learns_positions = model.attention.position->added_vectors() == AddedVectors::learned;
  const std::vector<Stack> stacks = stacks_of(model);
  for (const Stack& stack : stacks) {
    n += learns_positions ? d * stack.tokens : 0;
    Exact block = stack.norms * norm + mlp_parameters(model.mlp, d);
    for (std::size_t i = 0; i < stack.attentions.size(); ++i) {
      block += attention_parameters(stack.attentions[i], d, stack.spans[i].sources);
    }
    n += stack.layers * block;
  }
  return n.value();
}

std::int64_t count_hidden_matrices(const ModelOptions& model) {
  const Exact d = model.d_model;
  Exact n = 0;
  for (const Stack& stack : stacks_of(model)) {
    Exact block = mlp_matrices(model.mlp, d);
    for (const AttentionOptions& attention : stack.attentions) {
      block += attention.projection->matrices(attention, d);
    }
    n += stack.layers * block;
  }
  return n.value();
}

}  // namespace headroom::cost
