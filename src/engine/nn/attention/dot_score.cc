// The scaled dot product of query and key; with a sink b (gpt-oss, 2025) the weights of head h are
//   p_ij = exp(s_ij) / (exp(b_h) + sum over visible j of exp(s_ij))
// so that a query may take less than the whole of the values. b is neither scaled nor masked.
#include <cmath>

#include "headroom/nn/score.h"

namespace headroom::nn {
namespace {

class DotScore : public Score {
 public:
  DotScore(const config::AttentionOptions& options, const Builder& build)
      : fixed_(1.0 / std::sqrt(static_cast<double>(options.d_head))),
        dropout_(options.dropout),
        learned_(make_scale(options, build)) {
    if (options.sink) {
      sink_ = build.started("sink", {options.n_heads}, Start::normal(0.02));
    }
  }

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& /*call*/, const Context& context) const override {
    apply_scale(in, learned_, fixed_, context);
    if (sink_.defined()) {
      in.sink = sink_;
    }
    return run_attention(in, dropout_, context);
  }
  bool takes_sequences() const override { return true; }

 private:
  double fixed_, dropout_;
  at::Tensor learned_;
  at::Tensor sink_;  // [H]
};

const Factory<MakeScore> kDotScore("dot",
                                   [](const config::AttentionOptions& options, const ScorePlace&,
                                      const Builder& build) -> std::unique_ptr<Score> {
                                     return std::make_unique<DotScore>(options, build);
                                   });

}  // namespace
}  // namespace headroom::nn
