// Sigmoid attention (Ramapuram et al. 2024): each query-key pair is weighted independently,
//   o_i = sum over visible j of sigmoid(scale q_i . k_j - log n_i) v_j
// with n_i the number of keys visible to query i. The bias makes a query's weights sum to about 1 at small scores, as
// with a softmax. n_i follows the mask (memory, causality, window, padding), so it is the same with a cache as for the
// whole sequence.
#include <cmath>

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

class SigmoidScore : public Score {
 public:
  SigmoidScore(const config::AttentionOptions& options, const ScorePlace& /*place*/, const Builder& build)
      : fixed_(1.0 / std::sqrt(static_cast<double>(options.d_head))),
        dropout_(options.dropout),
        learned_(make_scale(options, build)) {}

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& /*call*/, const Context& context) const override {
    ops::choose("sigmoid_attention", context.implementation, "sigmoid attention needs the reference implementation");
    apply_scale(in, learned_, fixed_, context);
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
