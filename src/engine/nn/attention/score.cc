#include "headroom/nn/attention_parts.h"

#include <algorithm>
#include <cmath>

#include "engine/nn/linear.h"
#include "headroom/ops/choice.h"

namespace headroom::nn {

at::Tensor make_scale(const config::AttentionOptions& options, const Builder& build) {
  return options.scale == config::Scale::learned
             ? build.constant("scale", {1}, 1.0 / std::sqrt(static_cast<double>(options.d_head)))
             : at::Tensor();
}

void apply_scale(ops::AttentionInputs& in, const at::Tensor& learned, double fixed, const Context& context) {
  in.scale = fixed;
  if (!learned.defined()) {
    return;
  }
  const at::Tensor scale = to_compute(learned, context);
  in.q = in.q * scale;
  if (in.q_position) {
    in.q_position = *in.q_position * scale;
  }
  in.scale = 1.0;
}

at::Tensor drop_weights(const at::Tensor& weights, double p, const Context& context) {
  return dropout(weights, p, context, "weights");
}

ops::Visit pair_values(const Context& context) {
  if (std::ranges::none_of(kPairValues, [&](auto name) { return context.wants(name); })) {
    return {};
  }
  return [&context](ops::AttentionStage stage, at::Tensor value) {
    switch (stage) {
      case ops::AttentionStage::component:
        return value;
      case ops::AttentionStage::scores:
        return context.observe("scores", std::move(value));
      case ops::AttentionStage::scores_composed:
        return context.observe("scores_composed", std::move(value));
      case ops::AttentionStage::probs:
        return context.observe("probs", std::move(value));
      case ops::AttentionStage::probs_composed:
        return context.observe("probs_composed", std::move(value));
    }
    return value;
  };
}

at::Tensor run_attention(const ops::AttentionInputs& in, double dropout, const Context& context,
                         const ops::Visit& visit) {
  const bool drops = context.training && dropout > 0.0;
  const ops::Visit observed = pair_values(context);
  if (drops) {
    ops::choose("attention", context.implementation, "dropout of weights needs the reference implementation");
  } else if (observed) {
    ops::choose("attention", context.implementation, "observing scores and weights needs the reference implementation");
  } else if (!visit) {
    return ops::attention(in, context.implementation);
  }
  return ops::attention_reference(in, [&](ops::AttentionStage stage, at::Tensor value) {
    if (drops && stage == ops::AttentionStage::probs) {
      value = drop_weights(value, dropout, context);
    }
    value = visit ? visit(stage, std::move(value)) : value;
    return observed ? observed(stage, std::move(value)) : value;
  });
}

}  // namespace headroom::nn
