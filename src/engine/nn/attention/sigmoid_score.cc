// Sigmoid attention (Ramapuram et al. 2024): each query-key pair is weighted independently,
//   o_i = sum over visible j of sigmoid(scale q_i . k_j - log n_i) v_j
// with n_i the number of keys visible to query i. The bias makes a query's weights sum to about 1 at small scores, as
// with a softmax. n_i follows the mask (memory, causality, window, padding), so it is the same with a cache as for the
// whole sequence.
#include <cmath>

#include "engine/ops/attention/attention_operator.h"
#include "engine/ops/many_rows.h"
#include "headroom/nn/attention_parts.h"
#include "headroom/ops/choice.h"

namespace headroom::nn {
namespace {

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
