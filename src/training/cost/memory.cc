#include "memory.h"

#include <algorithm>
#include <optional>

#include "cost.h"
#include "headroom/config/attention/output_gate_options.h"
#include "model_parts.h"

namespace headroom::cost {

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

// Cache elements of one layer that caches `tokens` tokens.
Exact cached_elements(const AttentionOptions& a, std::int64_t tokens, bool memory) {
  const std::optional<Exact> state = a.score->state_elements(a);
  if (state && !memory) {
    return *state;
  }
  return (a.projection->cache_elements(a) + a.composition->cache_elements(a) + a.position->cache_elements(a)) * tokens;
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
    n += translates ? cached_elements(a, model.context_length, false) * count : 0;
  }
  return n.value();
}

}  // namespace headroom::cost
