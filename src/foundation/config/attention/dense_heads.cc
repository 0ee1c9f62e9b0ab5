// projection = "dense": one matrix a head, or one for a group of query heads that share keys and values.
#include "foundation/config/checker.h"
#include "head_projections.h"

namespace headroom::config {
namespace {

class DenseHeads : public detail::HeadProjections {
 public:
  std::string_view name() const override { return "dense"; }
  std::string_view about() const override { return "one matrix a head"; }
  void describe(Fields&, AttentionOptions&) const override {}
  void check(const detail::Checker& check, const ModelOptions& model) const override {
    detail::check_groups(check, model.attention);
  }
  void check_absent(const detail::Checker&, const AttentionOptions&) const override {}
  std::vector<Example> examples() const override {
    return {{"dense", [](AttentionOptions&) {}}, {"multi-query", [](AttentionOptions& o) { o.n_kv_heads = 1; }}};
  }

  bool starts_truncated() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return a.kv_heads() == a.n_heads ? fmt::format("{}", a.n_heads)
                                     : fmt::format("{} ({} kv)", a.n_heads, a.kv_heads());
  }
  std::int64_t d_head_step() const override { return 1; }
};

const Registration<DenseHeads> kDenseHeads;

}  // namespace
}  // namespace headroom::config
