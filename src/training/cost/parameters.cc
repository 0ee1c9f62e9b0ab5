#include "cost.h"
#include "model_parts.h"

namespace headroom::cost {

using namespace config;

namespace {

Sizes with_bias(Exact in, Exact out, bool bias) {
  return bias ? Sizes{in * out, out} : Sizes{in * out};
}

Sizes embedding_tensors(const ModelOptions& model, Exact d) {
  if (model.kind == ModelKind::vision) {
    return with_bias(patch_elements(model), d, true);
  }
  Sizes all = {d * model.vocabulary_size};
  return model.source_vocabulary_size > 0 ? all + Sizes{d * model.source_vocabulary_size} : all;
}

Sizes vocabulary_head(const ModelOptions& model, Exact d) {
  Sizes all(model.tied_embeddings ? 0 : 1, d * model.vocabulary_size);
  all = all + Sizes(model.head_bias ? 1 : 0, model.vocabulary_size);
  if (const auto cutoffs = std::ssize(model.adaptive_cutoffs); cutoffs > 0) {
    all = all + with_bias(d, cutoffs, true);  // one logit per cluster of rare tokens
  }
  // A masked language model's head starts with an additional layer.
  return model.kind == ModelKind::masked_language_model ? all + with_bias(d, d, true) : all;
}

Sizes class_head(const ModelOptions& model) {
  const Exact hidden = model.d_head_hidden;
  if (model.d_head_hidden > 0) {
    return with_bias(features_of(model), hidden, true) + with_bias(hidden, model.n_classes, model.head_bias);
  }
  return with_bias(features_of(model), model.n_classes, model.head_bias);
}

// Tensors that occur `times` times in the model.
struct Group {
  Exact times = 1;
  Sizes sizes;
  bool hidden = false;
};

std::vector<Group> groups_of(const ModelOptions& model) {
  const Exact d = model.d_model;
  const Sizes norm(model.norm == Norm::layer ? 2 : 1, d);
  std::vector<Group> groups = {
      {.times = 1, .sizes = embedding_tensors(model, d)},
      {.times = 1, .sizes = model.has_classes() ? class_head(model) : vocabulary_head(model, d)},
      {.times = outer_norms(model), .sizes = norm}};
  const bool learns_positions = model.attention.position->added_vectors() == AddedVectors::learned;
  if (learns_positions) {
    groups.push_back({.times = model.kind == ModelKind::encoder_decoder ? 2 : 1, .sizes = {d * tokens_of(model)}});
  }
  for (const Stack& stack : stacks_of(model)) {
    groups.push_back({.times = stack.distinct * stack.norms, .sizes = norm});
    const MlpParts mlp = mlp_parts(stack.mlp, d);
    groups.push_back({.times = stack.distinct, .sizes = mlp.matrices, .hidden = true});
    groups.push_back({.times = stack.distinct, .sizes = mlp.others});
    for (std::size_t i = 0; i < stack.attentions.size(); ++i) {
      const AttentionOptions& a = stack.attentions[i];
      groups.push_back({.times = stack.distinct, .sizes = a.projection->matrices(a, d), .hidden = true});
      groups.push_back({.times = stack.distinct, .sizes = other_attention_tensors(a, d, stack.spans[i].sources)});
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

std::vector<ParameterTensor> parameter_tensors(const ModelOptions& model) {
  std::vector<ParameterTensor> all;
  for (const Group& group : groups_of(model)) {
    for (std::int64_t i = 0; i < group.times.value(); ++i) {
      for (const Exact& size : group.sizes) {
        all.push_back({.elements = size.value(), .hidden = group.hidden});
      }
    }
  }
  return all;
}

std::int64_t count_hidden_matrices(const ModelOptions& model) {
  Exact n = 0;
  for (const Group& group : groups_of(model)) {
    n += group.hidden ? group.times * sum_of(group.sizes) : 0;
  }
  return n.value();
}

}  // namespace headroom::cost
