// projection = "gated_heads": all heads are computed, the k best of each token let through (SwitchHead Eq. 4-6).
#include "foundation/config/checker.h"
#include "head_projections.h"

namespace headroom::config {
namespace {

class GatedHeads : public detail::HeadProjections {
 public:
  std::string_view name() const override { return "gated_heads"; }
  std::string_view about() const override { return "dense, only the top_k heads of each token let through"; }

  void describe(Fields& fields, AttentionOptions& o) const override { detail::describe_choice(fields, o); }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    detail::check_groups(check, a);
    check.require(a.top_k <= a.n_heads, "top_k", "must be at most n_heads = {} with {}, got {}", a.n_heads,
                  detail::setting("projection", a.projection), a.top_k);
    check.require(!a.shared_selection, "shared_selection",
                  "needs projection = \"experts\": gated heads select on the query's side only");
  }

  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}

  std::vector<Example> examples() const override {
    return {{"gated heads", [](AttentionOptions&) {}}};
  }

  Sizes other_tensors(const AttentionOptions& a, Exact d) const override {
    return HeadProjections::other_tensors(a, d) + Sizes{d * a.n_heads};
  }

  ProjectionProducts products(const AttentionOptions& a, Exact d, const Span& span) const override {
    ProjectionProducts macs = HeadProjections::products(a, d, span);
    macs.selection = d * a.n_heads * span.queries;
    return macs;
  }

  // Dense, and HdT + HTe MACs, HT numbers: the gate and the weighing.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact gates = z.t * a.n_heads;
    return HeadProjections::paper(a, z) + PaperTerms{.macs = gates * z.d + gates * a.d_head, .memory = gates};
  }

  bool starts_truncated() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} ({} let through)", a.n_heads, a.top_k);
  }
};

const Registration<GatedHeads> kGatedHeads;

}  // namespace
}  // namespace headroom::config
