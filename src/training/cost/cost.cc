#include "cost.h"

#include <algorithm>
#include <optional>

#include "headroom/config/attention/output_gate_options.h"
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
    all = all + with_bias(d, cutoffs, model.head_bias);  // one logit per cluster of rare tokens
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

using namespace config;

namespace {

// MACs outside the blocks, per example.
Exact outer_macs(const ModelOptions& model) {
  const Exact d = model.d_model, t = tokens_of(model);
  if (model.has_classes()) {
    const Exact patches = model.kind == ModelKind::vision ? t * patch_elements(model) * d : 0;
    const Exact hidden = model.d_head_hidden;
    return patches + (model.d_head_hidden > 0 ? hidden * (features_of(model) + model.n_classes)
                                              : features_of(model) * model.n_classes);
  }
  const Exact classes = static_cast<std::int64_t>(model.adaptive_cutoffs.size());
  const Exact transform = model.kind == ModelKind::masked_language_model ? d : 0;
  return t * d * (transform + classes + model.vocabulary_size);
}

// MACs of the head in a training step. A masked language model computes it for hidden tokens only.
Exact trained_head_macs(const ModelOptions& model, const Exact& head) {
  if (model.kind != ModelKind::masked_language_model) {
    return head;
  }
  const std::int64_t hundreds = head.value() / 100, rest = head.value() % 100;  // split to avoid an overflow
  return hundreds * kMaskedPercent + rest * kMaskedPercent / 100;
}

}  // namespace

ExecutedCost executed_cost(const ModelOptions& model, std::int64_t batch) {
  if (batch < 1) {
    user_error("cost: the batch must be at least 1 sequence, got {}", batch);
  }
  const Exact d = model.d_model;
  Exact attention = 0, positions = 0, noise = 0, mlp = 0, masked = 0;
  for (const Stack& stack : stacks_of(model)) {
    const Exact layers = stack.layers * sequences_of(model);
    for (std::size_t i = 0; i < stack.spans.size(); ++i) {
      const AttentionProducts products = attention_products(stack.attentions[i], d, stack.spans[i]);
      attention += layers * (products.projections + products.gates + products.selection + products.scores +
                             products.composition);
      positions += layers * products.positions;
      noise += layers * products.noise;
      masked += layers * masked_macs(stack.attentions[i], d, stack.spans[i]);
    }
    mlp += layers * stack.tokens * mlp_parts(stack.mlp, d).macs;
  }
  const Exact head = outer_macs(model);
  const Exact step = ((attention + noise + mlp + trained_head_macs(model, head)) * batch + positions) * 3;
  return {.attention_macs = (attention + positions).value(),
          .mlp_macs = mlp.value(),
          .head_macs = head.value(),
          .step_macs = step.value(),
          .visible_macs = step.value() - (masked * batch * 3).value()};
}

namespace {

// Twice the MACs of a step; nullopt if sentences differ in length.
std::optional<double> flops_of(const config::Config& config, std::int64_t ExecutedCost::*macs) {
  if (config.model.kind == ModelKind::encoder_decoder || config.model.kind == ModelKind::classifier) {
    return std::nullopt;
  }
  return 2.0 * static_cast<double>(executed_cost(config.model, config.whole_sequences()).*macs);
}

}  // namespace

std::optional<double> step_flops(const config::Config& config) {
  return flops_of(config, &ExecutedCost::step_macs);
}

std::optional<double> visible_step_flops(const config::Config& config) {
  return flops_of(config, &ExecutedCost::visible_macs);
}

std::optional<double> training_flops(const config::Config& config) {
  const std::optional<double> step = step_flops(config);
  return step ? std::optional(*step * static_cast<double>(config.train.steps)) : std::nullopt;
}

PaperCost paper_cost(const ModelOptions& model) {
  const Exact tokens = tokens_of(model);
  const PaperSizes sizes{.t = tokens, .s = tokens + model.memory_length, .d = model.d_model};
  PaperTerms sum;  // of all layers
  for (const auto& [layer, count] : model.kinds_of_layers(model.n_layers)) {
    const AttentionOptions& a = layer.attention;
    const PaperTerms terms = a.projection->paper(a, sizes) + a.score->paper(a, sizes) + a.composition->paper(a, sizes) +
                             a.position->paper(a, sizes) + paper_output_gate(a, sizes);
    sum.macs += terms.macs * count;
    sum.memory += terms.memory * count;
  }
  return {.attention_macs = sum.macs.value() / model.n_layers, .attention_memory = sum.memory.value() / model.n_layers};
}

using namespace config;

namespace {

constexpr std::int64_t kFloat = 4, kBfloat16 = 2;

// Elements saved for the backward pass, by data type.
struct Saved {
  Exact wide = 0;         // always float32: inputs of norms
  Exact in_products = 0;  // in the compute type: operands and results of matrix multiplications
};

// Elements saved per block and sequence.
Saved block_elements(const ModelOptions& model, const Stack& stack) {
  const Exact d = model.d_model, norms = stack.norms * stack.tokens * d;
  Saved saved{.wide = norms, .in_products = norms + stack.tokens * mlp_parts(stack.mlp, d).saved};
  for (std::size_t i = 0; i < stack.spans.size(); ++i) {
    const AttentionOptions& a = stack.attentions[i];
    const AttentionExtent& span = stack.spans[i];
    const Exact keys = Exact(a.projected_width('k')) * a.key_projections();
    saved.in_products += span.queries * a.attention_matrices() * (Exact(a.d_head) + a.value_width());
    const std::int64_t gates = a.gate_output->gates(a);
    saved.in_products += span.queries * a.computed_heads() * (gates > 0 ? Exact(gates) + a.value_width() : 0);
    saved.in_products += a.of<OutputGateOptions>().exclusive ? span.queries * a.computed_heads() * a.value_width() : 0;
    saved.in_products += span.sources * a.computed_kv_heads() * (keys + a.value_width());
    saved.wide += a.score->saved_elements(a, span);
    if (a.dropout > 0.0 && a.score->has_scores()) {  // the reference operator keeps the weights before and after
      saved.wide += Exact(2) * a.attention_matrices() * span.queries * span.sources;
    }
  }
  return saved;
}

Saved model_elements(const ModelOptions& model) {
  const Exact last = outer_norms(model) * tokens_of(model) * model.d_model;
  Saved saved{.wide = last, .in_products = last};
  for (const Stack& stack : stacks_of(model)) {
    const Saved block = block_elements(model, stack);
    saved.wide += stack.layers * block.wide;
    saved.in_products += stack.layers * block.in_products;
  }
  return saved;
}

// Number of parameters with bf16 copies: all but the embedding (vectors are negligible).
Exact product_parameters(const ModelOptions& model, std::int64_t parameters) {
  const Exact tokens = Exact(model.vocabulary_size) + model.source_vocabulary_size;
  const Exact embedding = model.reads_tokens() ? tokens * model.d_model : 0;
  return std::max<std::int64_t>(parameters - embedding.value(), 0);
}

// Elements in the optimizer state.
Exact moments_of(const Config& config, const Exact& parameters) {
  const bool all_squares = has_second_moment(config.train.optimizer, true);
  return (parameters * 2).value() - (all_squares ? 0 : count_hidden_matrices(config.model));
}

// Cache elements of one token in a layer that keeps its tokens.
Exact token_elements(const AttentionOptions& a) {
  return a.projection->cache_elements(a) + a.composition->cache_elements(a) + a.position->cache_elements(a);
}

// Cache elements of one layer that caches `tokens` tokens.
Exact cached_elements(const AttentionOptions& a, std::int64_t tokens, bool memory) {
  const std::optional<Exact> state = a.score->state_elements(a);
  if (state && !memory) {
    return *state;
  }
  return token_elements(a) * tokens;
}

}  // namespace

StepMemory step_memory(const Config& config) {
  const ModelOptions& model = config.model;
  const bool narrow = config.train.precision == Precision::bf16;
  const Exact parameters = count_parameters(model);
  const Exact sequences = Exact(config.whole_sequences()) * sequences_of(model);
  const Saved saved = model_elements(model);
  const Exact rows = sequences.value() / config.train.accumulate;  // of a micro-batch
  const Exact carried = Exact(2) * model.n_layers * model.memory_length * model.d_model * sequences;

  StepMemory bytes{.parameters = (parameters * kFloat).value(),
                   .gradients = (parameters * kFloat).value(),
                   .moments = (moments_of(config, parameters) * kFloat).value()};
  Exact activations =
      rows * (saved.wide * kFloat + saved.in_products * (narrow ? kBfloat16 : kFloat)) + carried * kFloat;
  activations += narrow ? product_parameters(model, parameters.value()) * kBfloat16 : 0;
  bytes.activations = activations.value();
  bytes.carried = (carried * kFloat).value();
  const Exact passing = config.train.accumulate > 1 ? Exact(bytes.gradients) + bytes.activations
                                                    : Exact(std::max(bytes.gradients, bytes.activations));
  bytes.total = (Exact(bytes.parameters) + bytes.moments + passing).value();
  return bytes;
}

std::int64_t decoding_cache_elements(const ModelOptions& model) {
  const bool translates = model.kind == ModelKind::encoder_decoder;
  if (model.kind != ModelKind::language_model && !translates) {
    return 0;
  }
  const std::int64_t tokens = (Exact(model.context_length) + model.memory_length).value();
  Exact n = 0;
  for (const auto& [layer, count] : model.kinds_of_layers(translates ? model.decoder_layers() : model.n_layers)) {
    const AttentionOptions& a = layer.attention;
    n += cached_elements(a, a.window > 0 ? std::min(a.window, tokens) : tokens, model.memory_length > 0) * count;
    n += translates ? token_elements(a.across_sequences()) * model.context_length * count : 0;  // the source
  }
  return n.value();
}

}  // namespace headroom::cost
