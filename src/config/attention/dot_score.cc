// score = "dot": the scaled dot product of query and key.
#include "config/checker.h"
#include "key_mixture.h"
#include "score_matrix.h"

namespace headroom::config {
namespace {

class DotScore : public detail::ScoreMatrix {
 public:
  std::string_view name() const override { return "dot"; }
  std::string_view about() const override { return "scaled dot product"; }
  void describe(Fields&, AttentionOptions&) const override {}
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    detail::check_no_key_mixture(check, model.attention);
  }
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}
};

const Registration<DotScore> kDotScore;

}  // namespace
}  // namespace headroom::config
