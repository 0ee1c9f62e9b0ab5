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

Sizes with_bias(Exact in, Exact out, bool bias) {
  return bias ? Sizes{in * out, out} : Sizes{in * out};
}

Sizes mlp_tensors(const MlpOptions& mlp, Exact d) {
  const Exact hidden = mlp.d_hidden;
  switch (mlp.kind) {
    case MlpKind::dense:
      return with_bias(d, hidden, mlp.bias) + with_bias(hidden, d, mlp.bias);
    case MlpKind::gated:
      return with_bias(d, hidden, mlp.bias) + with_bias(d, hidden, mlp.bias) + with_bias(hidden, d, mlp.bias);
    case MlpKind::experts:
      return {d * mlp.n_experts, d * mlp.n_experts * hidden, d * mlp.n_experts * hidden};
  }
  misuse("cost: model.mlp.kind has no parameter formula");
}

Sizes embedding_tensors(const ModelOptions& model, Exact d) {
  if (model.kind == ModelKind::vision) {
    return with_bias(patch_numbers(model), d, true);
  }
  Sizes all = {d * model.vocabulary_size};
  return model.source_vocabulary_size > 0 ? all + Sizes{d * model.source_vocabulary_size} : all;
}

Sizes vocabulary_head(const ModelOptions& model, Exact d) {
  Sizes all(model.tied_embeddings ? 0 : 1, d * model.vocabulary_size);
  all = all + Sizes(model.head_bias ? 1 : 0, model.vocabulary_size);
  if (const auto cutoffs = std::ssize(model.adaptive_cutoffs); cutoffs > 0) {
    all = all + with_bias(d, cutoffs, true);  // one logit a class of rarer tokens
  }
  // A masked language model's head begins with a layer of its own.
  return model.kind == ModelKind::masked_language_model ? all + with_bias(d, d, true) : all;
}

Sizes class_head(const ModelOptions& model) {
  const Exact hidden = model.d_head_hidden;
  if (model.d_head_hidden > 0) {
    return with_bias(features_of(model), hidden, true) + with_bias(hidden, model.n_classes, model.head_bias);
  }
  return with_bias(features_of(model), model.n_classes, model.head_bias);
}

// Equal groups of tensors.
struct Group {
  Exact times = 1;
  Sizes sizes;
};

std::vector<Group> groups_of(const ModelOptions& model) {
  const Exact d = model.d_model;
  const Sizes norm(model.norm == Norm::layer ? 2 : 1, d);
  std::vector<Group> groups = {
      {.times = 1, .sizes = embedding_tensors(model, d)},
      {.times = 1, .sizes = model.has_classes() ? class_head(model) : vocabulary_head(model, d)},
      {.times = outer_norms(model), .sizes = norm}};
  const bool learns_positions = model.attention.position->added_vectors() == AddedVectors::learned;
  for (const Stack& stack : stacks_of(model)) {
    groups.push_back({.times = learns_positions ? 1 : 0, .sizes = {d * stack.tokens}});
    groups.push_back({.times = stack.layers * stack.norms, .sizes = norm});
    groups.push_back({.times = stack.layers, .sizes = mlp_tensors(model.mlp, d)});
    for (std::size_t i = 0; i < stack.attentions.size(); ++i) {
      groups.push_back(
          {.times = stack.layers, .sizes = attention_tensors(stack.attentions[i], d, stack.spans[i].sources)});
    }
  }
  return groups;
}

}  // namespace

std::int64_t count_parameters(const ModelOptions& model) {
  Exact n = 0;
  for (const Group& group : groups_of(model)) {
    n += group.times * sum_of(group.sizes);
  }
  return n.value();
}

std::vector<std::int64_t> parameter_tensors(const ModelOptions& model) {
  std::vector<std::int64_t> all;
  for (const Group& group : groups_of(model)) {
    for (std::int64_t i = 0; i < group.times.value(); ++i) {
      for (const Exact& size : group.sizes) {
        all.push_back(size.value());
      }
    }
  }
  return all;
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
