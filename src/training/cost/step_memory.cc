// step_memory(): what fused operators save cannot be counted from the layers, which run their reference operators.
#include <algorithm>
#include <vector>

#include "cost.h"
#include "headroom/config/attention/output_gate_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::cost {

using namespace config;

namespace {

Exact tokens_of(const ModelOptions& model) {
  return model.kind == ModelKind::vision ? model.patches() : model.context_length;
}

// Identical blocks of one stack, wherever they are in it.
struct Stack {
  Exact layers = 0;
  Exact tokens = 0;                    // tokens per sequence that a layer reads
  std::vector<AttentionExtent> spans;  // one per attention layer of a block
  std::vector<AttentionOptions> attentions;
  MlpOptions mlp;
  Exact norms = 0;  // per block
};

// Returns the kinds of blocks of the model: of its encoder, its decoder, or both.
std::vector<Stack> stacks_of(const ModelOptions& model) {
  const Exact t = tokens_of(model);
  const AttentionExtent own{.queries = t, .sources = t + model.memory_length};
  std::vector<Stack> stacks;
  for (const auto& [layer, count] : model.kinds_of_layers(model.n_layers)) {
    stacks.push_back({.layers = count,
                      .tokens = t,
                      .spans = {own},
                      .attentions = {layer.attention},
                      .mlp = layer.mlp,
                      .norms = 2 * model.norms_per_sublayer()});
  }
  if (model.kind == ModelKind::encoder_decoder) {
    for (const auto& [layer, count] : model.kinds_of_layers(model.decoder_layers())) {
      stacks.push_back({.layers = count,
                        .tokens = t,
                        .spans = {own, own},
                        .attentions = {layer.attention, layer.attention.across_sequences()},
                        .mlp = layer.mlp,
                        .norms = 3 * model.norms_per_sublayer()});
    }
  }
  return stacks;
}

// Returns the number of norms outside the blocks.
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

// Returns the elements of an MLP per token that the backward pass needs.
Exact saved_by(const MlpOptions& mlp, Exact d) {
  const Exact hidden = mlp.d_hidden;
  const std::int64_t dense = mlp.activation == Activation::relu ? 1 : 2;  // relu saves only its result
  if (mlp.kind == MlpKind::experts) {
    const bool one_input = mlp.expert_kind == ExpertKind::dense;
    // The gate of the shared expert: the factors of the product, and the sigmoid.
    return hidden * mlp.top_k * (one_input ? dense : 4) + Exact(mlp.d_shared) * 4 + (mlp.shared_gate ? d + 2 : 0);
  }
  if (mlp.kind == MlpKind::gated) {
    return mlp.hidden_groups > 0 ? hidden * 5 + mlp.hidden_groups : hidden * 4;
  }
  return hidden * dense;
}

constexpr std::int64_t kFloat = 4, kBfloat16 = 2;

// Elements saved for the backward pass, by data type.
struct Saved {
  Exact wide = 0;         // always float32: inputs of norms
  Exact in_products = 0;  // in the compute type: operands and results of matrix multiplications
};

// Elements saved per block and sequence.
Saved block_elements(const ModelOptions& model, const Stack& stack) {
  const Exact d = model.d_model, norms = stack.norms * stack.tokens * d;
  Saved saved{.wide = norms, .in_products = norms + stack.tokens * saved_by(stack.mlp, d)};
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

}  // namespace

StepMemory step_memory(const Config& config) {
  const ModelOptions& model = config.model;
  const bool narrow = config.train.precision == Precision::bf16;
  const Exact parameters = count_parameters(model);
  const Exact sequences = Exact(config.whole_sequences()) * (model.paired ? 2 : 1);
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

}  // namespace headroom::cost
