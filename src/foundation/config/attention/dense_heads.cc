// projection = "dense": one matrix per head, or per group of query heads that share keys and values. projection =
// "gated_heads": dense heads with gates, top_k of which are non-zero for each token (SwitchHead Eq. 4-6).
#include "foundation/config/checker.h"
#include "headroom/config/part_options.h"
#include "shared.h"

namespace headroom::config {
namespace {

class DenseHeads : public detail::HeadProjections {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("bias_o", o.of<DenseOptions>().output_bias,
               "with bias: a bias of the output projection as well (false: Qwen2)");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    detail::check_groups(check, model.attention);
  }
  std::vector<Example> examples() const override {
    return {{"dense", [](AttentionOptions&) {}}, {"multi-query", [](AttentionOptions& o) { o.n_kv_heads = 1; }}};
  }

  bool has_output_bias(const AttentionOptions& a) const override { return a.bias && a.of<DenseOptions>().output_bias; }
  bool starts_truncated() const override { return true; }
  bool allows_several_maps() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return a.kv_heads() == a.n_heads ? fmt::format("{}", a.n_heads)
                                     : fmt::format("{} ({} kv)", a.n_heads, a.kv_heads());
  }
  std::int64_t d_head_step() const override { return 1; }
};

class GatedHeads : public detail::HeadProjections {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override { detail::describe_routing(fields, o); }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    detail::check_groups(check, a);
    check.require(a.of<RoutingOptions>().top_k <= a.n_heads, "top_k", "must be at most n_heads = {} with {}, got {}",
                  a.n_heads, detail::setting("projection", a.projection), a.of<RoutingOptions>().top_k);
  }

  bool routes(const AttentionOptions&) const override { return true; }
  std::int64_t router_width(const AttentionOptions& a) const override { return a.n_heads; }

  // The gates and the multiplication by them add HdT + HTw MACs and HT floats to dense heads.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact gates = z.t * a.n_heads;
    return HeadProjections::paper(a, z) + PaperTerms{.macs = gates * z.d + gates * a.value_width(), .memory = gates};
  }

  bool starts_truncated() const override { return true; }
  bool allows_several_maps() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} ({} let through)", a.n_heads, a.of<RoutingOptions>().top_k);
  }
};

const Registration<DenseHeads> kDenseHeads("dense", "one matrix a head");
const Registration<GatedHeads> kGatedHeads("gated_heads", "dense, of which each token uses the top_k heads");

}  // namespace
}  // namespace headroom::config
