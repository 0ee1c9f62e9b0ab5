#include "memory.h"

#include <algorithm>

#include "cost.h"
#include "model_parts.h"

namespace headroom::cost {

using namespace config;

namespace {

constexpr std::int64_t kFloat = 4, kBfloat16 = 2;

// Numbers that the backward pass reads, by what they are kept in.
struct Kept {
  Exact wide = 0;         // float32 in either precision: what norms read
  Exact in_products = 0;  // what matrix products read or give
};

Exact mlp_numbers(const MlpOptions& mlp) {
  const Exact hidden = mlp.d_hidden;
  const bool relu = mlp.activation == Activation::relu;
  switch (mlp.kind) {
    case MlpKind::dense:
      return hidden * (relu ? 1 : 2);
    case MlpKind::gated:
      return hidden * 4;
    case MlpKind::experts:
      return hidden * mlp.top_k * (relu ? 1 : 2);
  }
  user_error("cost: model.mlp.kind has no memory formula");
}

// Of one block and sequence.
Kept block_numbers(const ModelOptions& model, const Stack& stack) {
  const Exact d = model.d_model, norms = stack.norms * stack.tokens * d;
  Kept kept{.wide = norms, .in_products = norms + stack.tokens * mlp_numbers(model.mlp)};
  for (std::size_t i = 0; i < stack.spans.size(); ++i) {
    const AttentionOptions& a = stack.attentions[i];
    const AttentionExtent& span = stack.spans[i];
    const Exact keys = Exact(a.d_head) * a.key_projections();
    kept.in_products += span.queries * a.n_heads * (Exact(a.d_head) + a.value_width());
    const std::int64_t gates = a.gate_output->gates(a);
    kept.in_products += span.queries * a.n_heads * (gates > 0 ? Exact(gates) + a.value_width() : 0);
    kept.in_products += span.sources * a.computed_kv_heads() * (keys + a.value_width());
  }
  return kept;
}

Kept model_numbers(const ModelOptions& model) {
  const Exact last = outer_norms(model) * tokens_of(model) * model.d_model;
  Kept kept{.wide = last, .in_products = last};
  for (const Stack& stack : stacks_of(model)) {
    const Kept block = block_numbers(model, stack);
    kept.wide += stack.layers * block.wide;
    kept.in_products += stack.layers * block.in_products;
  }
  return kept;
}

// Parameters that products read in their own type: all but the embedding and what has no matrix, which is little.
Exact product_parameters(const ModelOptions& model, std::int64_t parameters) {
  const Exact tokens = Exact(model.vocabulary_size) + model.source_vocabulary_size;
  const Exact embedding = model.reads_tokens() ? tokens * model.d_model : 0;
  return std::max<std::int64_t>(parameters - embedding.value(), 0);
}

// Numbers that the optimizer remembers.
Exact remembered(const Config& config, const Exact& parameters) {
  const bool all_squares = has_second_moment(config.train.optimizer, true);
  return (parameters * 2).value() - (all_squares ? 0 : count_hidden_matrices(config.model));
}

}  // namespace

StepMemory step_memory(const Config& config) {
  const ModelOptions& model = config.model;
  const bool narrow = config.train.precision == Precision::bf16;
  const Exact parameters = count_parameters(model);
  const Exact sequences = Exact(config.whole_sequences()) * sequences_of(model);
  const Kept kept = model_numbers(model);
  // Of a micro-batch.
  const Exact rows = sequences.value() / config.train.accumulate;
  const Exact carried = Exact(2) * model.n_layers * model.memory_length * model.d_model * sequences;

  StepMemory bytes{.parameters = (parameters * kFloat).value(),
                   .gradients = (parameters * kFloat).value(),
                   .moments = (remembered(config, parameters) * kFloat).value()};
  Exact activations = rows * (kept.wide * kFloat + kept.in_products * (narrow ? kBfloat16 : kFloat)) + carried * kFloat;
  activations += narrow ? product_parameters(model, parameters.value()) * kBfloat16 : 0;
  bytes.activations = activations.value();
  bytes.carried = (carried * kFloat).value();
  const Exact passing = config.train.accumulate > 1 ? Exact(bytes.gradients) + bytes.activations
                                                    : Exact(std::max(bytes.gradients, bytes.activations));
  bytes.total = (Exact(bytes.parameters) + bytes.moments + passing).value();
  return bytes;
}

}  // namespace headroom::cost
