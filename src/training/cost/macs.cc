#include "cost.h"
#include "model_parts.h"

namespace headroom::cost {

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

}  // namespace headroom::cost
