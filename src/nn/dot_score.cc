// The scaled dot product of query and key.
#include <cmath>

#include "headroom/nn/score.h"

namespace headroom::nn {
namespace {

class DotScore : public Score {
 public:
  DotScore(const config::AttentionOptions& options, const Builder& build)
      : fixed_(1.0 / std::sqrt(static_cast<double>(options.d_head))),
        dropout_(options.dropout),
        learned_(make_scale(options, build)) {}

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& /*call*/, const Context& context) const override {
    apply_scale(in, learned_, fixed_, context);
    return run_attention(in, dropout_, context);
  }

 private:
  double fixed_, dropout_;
  at::Tensor learned_;
};

const Factory<MakeScore> kDotScore("dot",
                                   [](const config::AttentionOptions& options, const ScorePlace&,
                                      const Builder& build) -> std::unique_ptr<Score> {
                                     return std::make_unique<DotScore>(options, build);
                                   });

}  // namespace
}  // namespace headroom::nn
