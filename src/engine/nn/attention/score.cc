#include "headroom/nn/attention_parts.h"

#include <algorithm>
#include <cmath>

#include "engine/nn/linear.h"
#include "formula_values.h"
#include "headroom/config/attention/score_options.h"
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

namespace {

double fixed_scale(const config::AttentionOptions& options) {
  const double width = options.of<config::DotOptions>().scale_width;
  return 1.0 / std::sqrt(width > 0.0 ? width : static_cast<double>(options.d_head));
}

// The scaled dot product of query and key. With a sink b (gpt-oss, 2025) the weights of head h are
//   p_ij = exp(s_ij) / (exp(b_h) + sum over visible j of exp(s_ij)),
// which sum to less than 1. b is neither scaled nor masked. A formula computes the scores from the scaled products, and
// a mask hides keys (ops::ScoreFormula).
class DotScore : public Score {
 public:
  DotScore(const config::AttentionOptions& options, const ScorePlace& place, const Builder& build)
      : fixed_(fixed_scale(options)),
        dropout_(options.dropout),
        learned_(make_scale(options, build)),
        formula_(options, place.init.d_model, build) {
    if (options.of<config::DotOptions>().sink) {
      sink_ = build.random("sink", {options.computed_heads()}, Distribution::normal(0.02));
    }
  }

  at::Tensor key_features(const at::Tensor& x, const Context& context) const override {
    return formula_.key_features(x, context);
  }
  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const override {
    apply_scale(in, learned_, fixed_, context);
    if (sink_.defined()) {
      in.sink = sink_;
    }
    formula_.add_to(in, call);
    return run_attention(in, dropout_, context);
  }
  bool supports_sequences() const override { return !formula_.given(); }

 private:
  double fixed_, dropout_;
  at::Tensor learned_;
  at::Tensor sink_;  // [H]
  FormulaValues formula_;
};

const Factory<MakeScore> kDotScore("dot", make_part<Score, DotScore>);

}  // namespace
}  // namespace headroom::nn
