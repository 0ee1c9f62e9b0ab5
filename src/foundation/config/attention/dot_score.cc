// score = "dot": the scaled dot product of query and key; with a sink, a weight of each head that goes to no value.
#include "foundation/config/checker.h"
#include "key_mixture.h"
#include "score_matrix.h"

namespace headroom::config {
namespace {

class DotScore : public detail::ScoreMatrix {
 public:
  std::string_view name() const override { return "dot"; }
  std::string_view about() const override { return "scaled dot product"; }
  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("sink", o.sink, "dot: a learned score of each head that takes part in the softmax and has no value");
  }
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    detail::check_no_key_mixture(check, a);
    check.require(!a.sink || a.projection->has_fixed_heads(), "sink",
                  "must be false with {}, whose heads differ from "
                  "token to token: a sink belongs to one head",
                  detail::setting("projection", a.projection));
  }
  void check_absent(const detail::Checker& check, const AttentionOptions& a) const override {
    check.require(!a.sink, "sink", "needs score = \"dot\", not \"{}\": it takes a share of a softmax over dot products",
                  name_of(a.score));
  }
  std::vector<Example> examples() const override {
    return {{"dot", [](AttentionOptions&) {}}, {"dot, sink", [](AttentionOptions& o) { o.sink = true; }}};
  }

  // One number a head.
  Sizes tensors(const AttentionOptions& a, Exact) const override { return a.sink ? Sizes{a.n_heads} : Sizes(); }
};

const Registration<DotScore> kDotScore;

}  // namespace
}  // namespace headroom::config
