// Sigmoid attention: every pair of query and key is weighed by itself,
//   o_i = sum over visible j of sigmoid(scale q_i . k_j - log n_i) v_j
// with n_i the keys that query i sees. The bias makes the weights of a query sum to about 1 where scores are small, as
// a softmax's do. n_i counts what the mask leaves of memory, past, window and padding, not the keys of the call: the
// next token therefore sees the same n_i in a cache as in the whole sequence.
#include <cmath>

#include "headroom/nn/score.h"
#include "headroom/ops/choice.h"

namespace headroom::nn {
namespace {

at::Tensor weigh(const at::Tensor& scores, const at::Tensor& visible) {
  if (!visible.defined()) {
    return (scores - std::log(static_cast<double>(scores.sym_size(3).guard_int(__FILE__, __LINE__)))).sigmoid();
  }
  const at::Tensor n = visible.sum(-1, /*keepdim=*/true).clamp_min(1).to(scores.scalar_type());
  return (scores - n.log()).sigmoid().masked_fill(visible.logical_not(), 0.0);
}

class SigmoidScore : public Score {
 public:
  SigmoidScore(const config::AttentionOptions& options, const Builder& build)
      : fixed_(1.0 / std::sqrt(static_cast<double>(options.d_head))),
        dropout_(options.dropout),
        learned_(make_scale(options, build)) {}

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& /*call*/, const Context& context) const override {
    ops::choose("sigmoid_attention", context.implementation, "sigmoid attention has the reference only");
    apply_scale(in, learned_, fixed_, context);
    const auto weigh_and_drop = [&](const at::Tensor& scores, const at::Tensor& visible) {
      return drop_weights(weigh(scores, visible), dropout_, context);
    };
    return ops::weighted_attention(in, weigh_and_drop, pair_values(context));
  }

 private:
  double fixed_, dropout_;
  at::Tensor learned_;
};

const Factory<MakeScore> kSigmoidScore("sigmoid",
                                       [](const config::AttentionOptions& options, const ScorePlace&,
                                          const Builder& build) -> std::unique_ptr<Score> {
                                         return std::make_unique<SigmoidScore>(options, build);
                                       });

}  // namespace
}  // namespace headroom::nn
