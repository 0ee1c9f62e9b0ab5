#include "headroom/nn/score.h"

#include <cmath>

#include "headroom/nn/linear.h"
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

at::Tensor run_attention(const ops::AttentionInputs& in, double dropout, ops::AttentionTrace* trace,
                         const Context& context) {
  if (context.training && dropout > 0.0) {
    ops::choose("attention", context.implementation, "dropped weights have the reference only");
    return ops::attention_reference(in, trace, [&](const at::Tensor& p) { return drop_weights(p, dropout, context); });
  }
  return trace != nullptr ? ops::attention_reference(in, trace) : ops::attention(in, context.implementation);
}

}  // namespace headroom::nn
