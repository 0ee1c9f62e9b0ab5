#include "cost.h"

#include <algorithm>
#include <array>

#include "count.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"

namespace headroom::cost {

using namespace config;

std::vector<ParameterTensor> parameter_tensors(const ModelOptions& model) {
  return transformed(on_meta_device(model)->parameters().all(), [](const nn::Parameter& parameter) {
    return ParameterTensor{.elements = parameter.tensor.numel(), .hidden = parameter.hidden.has_value()};
  });
}

namespace {

// Returns `count`, an array of integers, of the model. Every additional layer of a kind adds the same to each count, so
// a model of many equal layers is extrapolated from 16 and 17 of them: n_layers = 65536 would take minutes.
template <class Count>
auto over_layers(const ModelOptions& model, const Count& count) {
  constexpr std::int64_t kFew = 16;
  if (model.n_layers <= kFew || model.n_groups != 0 || model.kind == ModelKind::encoder_decoder ||
      model.kinds_of_layers(model.n_layers).size() > 1) {
    return count(model);
  }
  ModelOptions shorter = model;
  shorter.n_layers = kFew;
  auto counts = count(shorter);
  ++shorter.n_layers;
  const auto next = count(shorter);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    counts[i] = (counts[i] + Exact(next[i] - counts[i]) * (model.n_layers - kFew)).value();
  }
  return counts;
}

// Returns the numbers of elements in all parameters and in the hidden matrices.
std::array<std::int64_t, 2> count_elements(const ModelOptions& model) {
  return over_layers(model, [](const ModelOptions& counted) {
    Exact all = 0, hidden = 0;
    for (const ParameterTensor& tensor : parameter_tensors(counted)) {
      all += tensor.elements;
      hidden += tensor.hidden ? tensor.elements : 0;
    }
    return std::array{all.value(), hidden.value()};
  });
}

}  // namespace

std::int64_t count_parameters(const ModelOptions& model) {
  return count_elements(model)[0];
}

std::int64_t count_hidden_matrices(const ModelOptions& model) {
  return count_elements(model)[1];
}

namespace {

// Returns the head's MACs in a training step. A masked language model computes the head for hidden tokens only.
Exact trained_head_macs(const ModelOptions& model, const Exact& head) {
  if (model.kind != ModelKind::masked_language_model) {
    return head;
  }
  const std::int64_t hundreds = head.value() / 100, rest = head.value() % 100;  // split to avoid an overflow
  return hundreds * kMaskedPercent + rest * kMaskedPercent / 100;
}

// Returns the members of ExecutedCost, in order.
std::array<std::int64_t, 5> count_executed(const ModelOptions& model, std::int64_t batch) {
  ModelOptions plain = model;  // dropout has no matrix multiplications
  plain.dropout = plain.attention.dropout = plain.attention.of<RoutingOptions>().expert_dropout = 0.0;
  const std::unique_ptr<models::Model> built = on_meta_device(plain);
  const ForwardMacs forward = forward_macs(*built, 1);
  const LayerMacs one = forward.sum(), two = forward_macs(*built, 2).sum();
  const bool noisy = plain.attention.of<RoutedHeadOptions>().noisy_routing;
  const std::int64_t attention = one.attention.value();
  const Exact noise = noisy ? forward_macs(*built, 1, /*training=*/true).sum().attention.value() - attention : 0;
  const std::int64_t sequence = two.attention.value() - attention;  // without the work that is done once per batch
  const Exact step =
      ((Exact(sequence) + noise + one.mlp + trained_head_macs(model, forward.head)) * batch + (attention - sequence)) *
      3;
  return {attention, one.mlp.value(), forward.head.value(), step.value(),
          step.value() - (one.hidden * batch * 3).value()};
}

}  // namespace

ExecutedCost executed_cost(const ModelOptions& model, std::int64_t batch) {
  if (batch < 1) {
    user_error("cost: the batch must be at least 1 sequence, got {}", batch);
  }
  const auto [attention, mlp, head, step, visible] =
      over_layers(model, [&](const ModelOptions& counted) { return count_executed(counted, batch); });
  return {.attention_macs = attention, .mlp_macs = mlp, .head_macs = head, .step_macs = step, .visible_macs = visible};
}

namespace {

// Returns twice the MACs of a step; nullopt if sentences differ in length.
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

namespace {

Exact tokens_of(const ModelOptions& model) {
  return model.kind == ModelKind::vision ? model.patches() : model.context_length;
}

// The gate on the head outputs. MACs: d_model (gate_channels) per gate, and one per gated value. Memory: the gates and
// the ungated head outputs.
PaperTerms paper_output_gate(const AttentionOptions& a, const PaperSizes& z) {
  const Exact heads = z.t * a.computed_heads(), gates = heads * a.gate_output->gates(a);
  const Exact results = a.gate_output->gates(a) > 0 ? heads * a.value_width() : 0;
  return {.macs = gates * a.gate_output->inputs(a, z.d) + results, .memory = gates + results};
}

}  // namespace

PaperCost paper_cost(const ModelOptions& model) {
  const Exact tokens = tokens_of(model);
  const PaperSizes sizes{.t = tokens, .s = tokens + model.memory_length, .d = model.d_model};
  PaperTerms sum;  // of all layers
  for (const auto& [layer, count] : model.kinds_of_layers(model.n_layers)) {
    const AttentionOptions& a = layer.attention;
    if (!a.has_heads()) {
      continue;
    }
    const PaperTerms terms = a.projection->paper(a, sizes) + a.score->paper(a, sizes) + a.composition->paper(a, sizes) +
                             a.position->paper(a, sizes) + paper_output_gate(a, sizes);
    sum.macs += terms.macs * count;
    sum.memory += terms.memory * count;
  }
  return {.attention_macs = sum.macs.value() / model.n_layers, .attention_memory = sum.memory.value() / model.n_layers};
}

std::int64_t decoding_cache_elements(const ModelOptions& model) {
  return over_layers(model, [](const ModelOptions& counted) {
    return std::array{counted.reads_tokens() ? cached_elements(*on_meta_device(counted)).value() : 0};
  })[0];
}

namespace {

// Identical blocks of one stack, at any position in it.
struct Stack {
  Exact layers = 0;
  Exact tokens = 0;                    // tokens per sequence that a layer reads
  std::vector<AttentionExtent> spans;  // one per attention layer of a block
  std::vector<AttentionOptions> attentions;
  MlpOptions mlp;
  Exact norms = 0;  // per block
};

// Returns the kinds of blocks in the model's encoder, decoder, or both.
std::vector<Stack> stacks_of(const ModelOptions& model) {
  const Exact t = tokens_of(model);
  const AttentionExtent own{.queries = t, .sources = t + model.memory_length};
  std::vector<Stack> stacks;
  for (const auto& [layer, count] : model.kinds_of_layers(model.n_layers)) {
    const bool attends = layer.attention.has_heads(), has_mlp = layer.mlp.kind != MlpKind::none;
    stacks.push_back({.layers = count,
                      .tokens = t,
                      .spans = std::vector(attends ? 1 : 0, own),
                      .attentions = std::vector(attends ? 1 : 0, layer.attention),
                      .mlp = layer.mlp,
                      .norms = ((attends ? 1 : 0) + (has_mlp ? 1 : 0)) * model.norms_per_sublayer()});
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
  if (mlp.kind == MlpKind::none) {
    return 0;
  }
  const Exact hidden = mlp.d_hidden;
  const std::int64_t dense = mlp.activation == Activation::relu ? 1 : 2;  // relu saves only its result
  if (mlp.kind == MlpKind::experts) {
    const bool one_input = mlp.expert_kind == ExpertKind::dense;
    // Gate of the shared expert: the two factors of the multiplication, and the sigmoid.
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
    saved.in_products += a.share_kv > 0 ? 0 : span.sources * a.computed_kv_heads() * (keys + a.value_width());
    saved.wide += a.score->saved_elements(a, span);
    if (a.dropout > 0.0 && a.score->has_scores()) {  // the reference operator saves weights before and after dropout
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

// Number of parameters with bf16 copies: all except the embedding (vectors are negligible).
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
  bytes.copies = narrow ? (product_parameters(model, parameters.value()) * kBfloat16).value() : 0;
  bytes.activations = (activations + bytes.copies).value();
  bytes.carried = (carried * kFloat).value();
  const Exact passing = config.train.accumulate > 1 ? Exact(bytes.gradients) + bytes.activations
                                                    : Exact(std::max(bytes.gradients, bytes.activations));
  bytes.total = (Exact(bytes.parameters) + bytes.moments + passing).value();
  return bytes;
}

}  // namespace headroom::cost
