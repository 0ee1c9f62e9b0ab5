// The scores of scaled dot products.
//
// score = "dot": softmax of scaled dot products, optionally with a sink: a learned score per head that has no value.
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class DotScore : public detail::ScoreMatrix {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::add_strict(fields, "sink", o.of<DotOptions>().sink,
                       "dot: a learned score of each head in the softmax, without a value");
    detail::add_strict(fields, "scale_width", o.of<DotOptions>().scale_width, at_least(0),
                       "dot: the fixed scale of the scores is 1/sqrt(scale_width) (Gemma); 0: d_head");
    detail::describe_formula(fields, o.of<DotOptions>());
  }
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    detail::check_no_soft_e(check, a);
    detail::check_formula(check, a);
    check.require(!a.of<DotOptions>().sink || a.projection->has_fixed_heads(), "sink",
                  "must be false with {}, which routes each token to other heads: a sink belongs to one head",
                  detail::setting("projection", a.projection));
  }
  std::vector<Example> examples() const override {
    return {{"dot", [](AttentionOptions&) {}},
            {"dot, sink", [](AttentionOptions& o) { o.of<DotOptions>().sink = true; }},
            {"dot, formula", [](AttentionOptions& o) {
               auto& own = o.of<DotOptions>();
               own.formula = "2 * tanh(s / 2) - slope * (i - j) + near[h, i - j] * tanh(size(j)) + decay(i) - decay(j)";
               own.mask = "i - j < 4 or j < 1";
               own.learned = R"(slope = {shape = "head", start = 0.5}, near = {shape = "head, distance", size = 3}, )"
                             R"(size = {shape = "token"}, )"
                             R"(decay = {shape = "token, head", from = "log_sigmoid", cumulative = true})";
             }}};
  }
  Exact saved_elements(const AttentionOptions& a, const AttentionExtent& extent) const override {
    return detail::saved_by_formula(a, extent);
  }
};

const Registration<DotScore> kDotScore("dot", "softmax of scaled dot products");

// score = "sigmoid": elementwise sigmoid of scaled dot products instead of the softmax.
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
