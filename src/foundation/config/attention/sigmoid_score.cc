// score = "sigmoid": the scaled dot product through a sigmoid for each pair by itself, in place of the softmax.
#include "foundation/config/checker.h"
#include "key_mixture.h"
#include "score_matrix.h"

namespace headroom::config {
namespace {

class SigmoidScore : public detail::ScoreMatrix {
 public:
  std::string_view name() const override { return "sigmoid"; }
  std::string_view about() const override { return "a sigmoid of each dot product, without normalisation"; }
  void describe(Fields&, AttentionOptions&) const override {}
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    detail::check_no_key_mixture(check, model.attention);
  }
  bool is_normalised() const override { return false; }
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}
};

const Registration<SigmoidScore> kSigmoidScore;

}  // namespace
}  // namespace headroom::config
