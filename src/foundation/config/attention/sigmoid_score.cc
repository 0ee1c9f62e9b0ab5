// score = "sigmoid": elementwise sigmoid of scaled dot products instead of the softmax.
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class SigmoidScore : public detail::ScoreMatrix {
 public:
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    detail::check_no_soft_e(check, model.attention);
  }
  bool is_normalised() const override { return false; }
};

const Registration<SigmoidScore> kSigmoidScore(
    "sigmoid", "sigmoid of each dot product minus log(visible keys), weights not normalised");

}  // namespace
}  // namespace headroom::config
