// The scores of scaled dot products: score = "dot", with a sink, and the formula and mask of the scores with their
// learned values; score = "sigmoid".
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/attention/attention_operator.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"
#include "headroom/ops/choice.h"

namespace headroom::nn {
namespace {

at::Tensor apply(config::TokenFunction function, const at::Tensor& x) {
  switch (function) {
    case config::TokenFunction::linear:
      return x;
    case config::TokenFunction::sigmoid:
      return x.sigmoid();
    case config::TokenFunction::log_sigmoid:
      return at::log_sigmoid(x);
    case config::TokenFunction::softplus:
      return at::log_sigmoid(x.neg()).neg();
    case config::TokenFunction::tanh:
      return x.tanh();
  }
  return x;
}

// Parameters "learned_<name>": [H], or of a table [H or 1, size]; of a token's projection "learned_<name>_w" [d, H or
// 1] and "learned_<name>_b" [H or 1].
class FormulaTensors {
 public:
  FormulaTensors(const config::AttentionOptions& options, std::int64_t d_model, const Builder& build);
  bool given() const { return given_; }
  // Returns the token terms of x [B, n, d] before they are summed over tokens, [B, 1, n, F], in at least float32.
  at::Tensor key_features(const at::Tensor& x, const Context& context) const;
  // Sets in.formula; `call` has the key features of all keys.
  void add_to(ops::AttentionInputs& in, const ScoreCall& call) const;

 private:
  struct Value {
    config::LearnedValue options;
    at::Tensor parameter, w;  // of tokens: bias and matrix
  };

  config::Formulas texts_;
  bool normalise_, given_;
  std::vector<Value> values_;
};

FormulaTensors::FormulaTensors(const config::AttentionOptions& options, std::int64_t d_model, const Builder& build)
    : texts_(config::formulas_of(options.of<config::DotOptions>(), options.computed_heads(), options.d_head)),
      normalise_(options.of<config::DotOptions>().normalise == config::Normalise::softmax),
      given_(!texts_.score.empty() || !texts_.mask.empty() || !normalise_) {
  for (const config::LearnedValue& value : texts_.learned) {
    const std::string name = "learned_" + value.name;
    const std::int64_t heads = value.by_head() ? options.computed_heads() : 1;
    if (value.of_tokens()) {
      values_.push_back({value, build.constant(name + "_b", {heads}, value.start),
                         build.for_matmul().matrix(name + "_w", {d_model, heads}, Distribution::normal(0.02),
                                                   {.in = d_model, .out = heads})});
    } else if (value.is_table()) {
      values_.push_back({value, build.constant(name, {heads, value.size}, value.start), {}});
    } else {
      values_.push_back({value, build.constant(name, {heads}, value.start), {}});
    }
  }
}

at::Tensor FormulaTensors::key_features(const at::Tensor& x, const Context& context) const {
  std::vector<at::Tensor> all;
  for (const Value& value : values_) {
    if (value.options.of_tokens()) {
      const at::Tensor projected = linear(x, value.w, value.parameter, context);
      all.push_back(by_rows(projected, context, [&](const auto& part) {
        const at::Tensor rows = part(projected);
        return apply(value.options.from, rows.scalar_type() == at::kDouble ? rows : rows.to(at::kFloat));
      }));
    }
  }
  return all.empty() ? at::Tensor() : at::cat(all, 2).unsqueeze(1);
}

void FormulaTensors::add_to(ops::AttentionInputs& in, const ScoreCall& call) const {
  in.formula = {.score = texts_.score, .mask = texts_.mask, .normalise = normalise_, .first_key = call.first_index};
  std::int64_t feature = 0;
  for (const Value& value : values_) {
    if (value.options.of_tokens()) {
      const std::int64_t heads = value.parameter.size(0);
      at::Tensor terms = call.features.squeeze(1).narrow(2, feature, heads).transpose(1, 2);
      feature += heads;
      if (value.options.cumulative) {
        if (in.mask.valid_keys) {  // padding adds nothing
          terms = terms.masked_fill(in.mask.valid_keys->logical_not().unsqueeze(1), 0.0);
        }
        terms = terms.cumsum(2);
      }
      in.formula.tokens.push_back(terms);
    } else if (value.options.is_table()) {
      in.formula.tables.push_back(value.parameter.unsqueeze(0));
    } else {
      in.formula.learned.push_back(value.parameter);
    }
  }
}

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
  FormulaTensors formula_;
};

const Factory<MakeScore> kDotScore("dot", make_part<Score, DotScore>);

// Sigmoid attention (Ramapuram et al. 2024): each query-key pair is weighted independently,
//   o_i = sum over visible j of sigmoid(scale q_i . k_j - log n_i) v_j
// with n_i the number of keys visible to query i. The bias makes a query's weights sum to about 1 at small scores, as
// with a softmax. n_i follows the mask (memory, causality, window, padding), so it is the same with a cache as for the
// whole sequence.

at::Tensor weigh(const at::Tensor& scores, const at::Tensor& visible) {
  if (!visible.defined()) {
    return ops::sigmoid(scores - std::log(static_cast<double>(scores.sym_size(3).guard_int(__FILE__, __LINE__))));
  }
  const at::Tensor n = visible.sum(-1, /*keepdim=*/true).clamp_min(1).to(scores.scalar_type());
  const at::Tensor log_n = ops::elementwise(n, [](const at::Tensor& some) { return some.log(); });
  return ops::sigmoid(scores - log_n).masked_fill(visible.logical_not(), 0.0);
}

// Returns log n_i, [B or 1, 1, T].
at::Tensor log_visible(const ops::AttentionInputs& in) {
  const c10::SymInt t = in.q.sym_size(2), s = in.k.sym_size(2);
  const at::TensorOptions whole = in.q.options().dtype(at::kLong);
  const at::Tensor end = in.mask.causal ? at::arange(at::Scalar(s - t + 1), at::Scalar(s + 1), whole)
                                        : at::full_symint({t}, at::Scalar(s), whole);
  const at::Tensor begin =
      in.mask.causal && in.mask.window > 0 ? (end - in.mask.window).clamp_min(0) : at::zeros_like(end);
  at::Tensor n = (end - begin).unsqueeze(0);
  if (in.mask.valid_keys) {
    const at::Tensor before = at::constant_pad_nd(in.mask.valid_keys->to(at::kLong).cumsum(1), {1, 0});
    n = before.index_select(1, end) - before.index_select(1, begin);
  }
  const at::ScalarType type = in.q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return ops::elementwise(n.clamp_min(1).to(type), [](const at::Tensor& some) { return some.log(); }).unsqueeze(1);
}

class SigmoidScore : public Score {
 public:
  SigmoidScore(const config::AttentionOptions& options, const ScorePlace& /*place*/, const Builder& build)
      : fixed_(1.0 / std::sqrt(static_cast<double>(options.d_head))),
        dropout_(options.dropout),
        learned_(make_scale(options, build)) {}

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& /*call*/, const Context& context) const override {
    apply_scale(in, learned_, fixed_, context);
    const bool drops = context.training && dropout_ > 0.0;
    if (!drops && !pair_values(context) && in.q.sym_size(2) != 0) {  // tables may not be empty
      ops::AttentionInputs fused = in;
      fused.formula = {.score = "sigmoid(s - table0[i])", .normalise = false, .queries_last = false};
      fused.formula.tables = {log_visible(in)};
      if (ops::attention_backends().choose_internal(context.implementation, in.q, fused) != nullptr) {
        return ops::attention(fused, context.implementation);
      }
    }
    ops::choose(
        "sigmoid_attention", context.implementation,
        "sigmoids with position terms, composed heads, dropout or observed weights need the reference implementation");
    if (context.batch_invariant) {
      in.q = in.q.clone();  // the rounding of torch's matmul depends on a row's address
    }
    const auto weigh_and_drop = [&](const at::Tensor& scores, const at::Tensor& visible) {
      return drop_weights(weigh(scores, visible), dropout_, context);
    };
    return ops::weighted_attention(in, weigh_and_drop, pair_values(context));
  }

 private:
  double fixed_, dropout_;
  at::Tensor learned_;
};

const Factory<MakeScore> kSigmoidScore("sigmoid", make_part<Score, SigmoidScore>);

}  // namespace
}  // namespace headroom::nn
