#include "cost.h"

#include <algorithm>
#include <array>
#include <optional>

#include "count.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention/projection_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::cost {

using namespace config;

std::vector<ParameterTensor> parameter_tensors(const ModelOptions& model) {
  return transformed(on_meta_device(model)->parameters().all(), [](const nn::Parameter& parameter) {
    return ParameterTensor{.elements = parameter.tensor.numel(), .hidden = parameter.hidden.has_value()};
  });
}

namespace {

// Returns what `count`, which returns an array of integers, returns for the model. Each further layer of the same kind
// adds the same to every count, so models of many equal layers are counted by 16 and by 17 of their layers: n_layers =
// 65536 would take minutes.
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

// Elements of all parameters, and of the hidden matrices.
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

// MACs of the head in a training step. A masked language model computes it for hidden tokens only.
Exact trained_head_macs(const ModelOptions& model, const Exact& head) {
  if (model.kind != ModelKind::masked_language_model) {
    return head;
  }
  const std::int64_t hundreds = head.value() / 100, rest = head.value() % 100;  // split to avoid an overflow
  return hundreds * kMaskedPercent + rest * kMaskedPercent / 100;
}

// The members of ExecutedCost, in their order.
std::array<std::int64_t, 5> count_executed(const ModelOptions& model, std::int64_t batch) {
  ModelOptions plain = model;  // dropout has no matrix multiplications
  plain.dropout = plain.attention.dropout = plain.attention.of<RoutingOptions>().expert_dropout = 0.0;
  const std::unique_ptr<models::Model> built = on_meta_device(plain);
  const ForwardMacs forward = forward_macs(*built, 1);
  const LayerMacs one = forward.sum(), two = forward_macs(*built, 2).sum();
  const bool noisy = plain.attention.of<RoutedHeadOptions>().noisy_routing;
  const std::int64_t attention = one.attention.value();
  const Exact noise = noisy ? forward_macs(*built, 1, /*training=*/true).sum().attention.value() - attention : 0;
  const std::int64_t sequence = two.attention.value() - attention;  // without what is computed once per batch
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

namespace {

// The gate on the head outputs. MACs: d_model (gate_channels) per gate, and one per gated value. Memory: the gates and
// the ungated head outputs.
PaperTerms paper_output_gate(const AttentionOptions& a, const PaperSizes& z) {
  const Exact heads = z.t * a.computed_heads(), gates = heads * a.gate_output->gates(a);
  const Exact results = a.gate_output->gates(a) > 0 ? heads * a.value_width() : 0;
  return {.macs = gates * a.gate_output->inputs(a, z.d) + results, .memory = gates + results};
}

}  // namespace

PaperCost paper_cost(const ModelOptions& model) {
  const Exact tokens = model.kind == ModelKind::vision ? model.patches() : model.context_length;
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

std::int64_t decoding_cache_elements(const ModelOptions& model) {
  return over_layers(model, [](const ModelOptions& counted) {
    return std::array{counted.reads_tokens() ? cached_elements(*on_meta_device(counted)).value() : 0};
  })[0];
}

}  // namespace headroom::cost
