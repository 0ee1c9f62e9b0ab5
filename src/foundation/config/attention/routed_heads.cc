// projection = "routed_heads": a router selects the k = H of E query heads that a token uses. All query heads share one
// key head and one value head (MoA).
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class RoutedHeads : public ProjectionPart {
 public:
  std::string_view name() const override { return "routed_heads"; }
  std::string_view about() const override { return "heads routed per token (MoA)"; }

  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::describe_routing(fields, o);
    fields.add("noisy_routing", o.noisy_routing, "routed_heads: learned noise on the router's scores in training")
        .refuse_unused = true;
    fields.add("switch_coefficient", o.switch_coefficient, at_least(0),
               "routed_heads: weight of the load-balancing loss E sum_e P_e F_e");
    fields.add("switch_slots_coefficient", o.switch_slots_coefficient, at_least(0),
               "routed_heads: weight of the same loss as MoA's released code computes it");
    fields.add("cv_coefficient", o.cv_coefficient, at_least(0),
               "routed_heads: weight of the squared coefficient of variation of the heads' weights");
    fields.add("z_coefficient", o.z_coefficient, at_least(0),
               "routed_heads: weight of the mean squared logsumexp of the router's scores");
    fields.add("entropy_coefficient", o.entropy_coefficient, at_least(0),
               "routed_heads: weight of the negative entropy of the mean routing distribution");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::string projection = detail::setting("projection", a.projection);
    check.require(a.n_kv_heads <= 1 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 or 1 with {}, whose heads share one key and value head, got {}", projection, a.n_kv_heads);
    check.require(a.top_k <= a.n_experts, "top_k", "must be at most n_experts = {}, got {}", a.n_experts, a.top_k);
    check.require(a.top_k == a.n_heads, "top_k", "must equal n_heads = {} with {}, got {}", a.n_heads, projection,
                  a.top_k);
    check.require(a.gate != Gate::softmax_top_k, "gate",
                  "must be \"sigmoid\", \"softmax\" or \"softmax_renormalised\" with {}, got \"{}\"", projection,
                  name_of(a.gate));
  }

  std::vector<Example> examples() const override {
    return {{"routed heads", [](AttentionOptions&) {}}};
  }

  std::int64_t kv_heads(const AttentionOptions&) const override { return 1; }
  std::int64_t position_heads(const AttentionOptions&) const override { return 1; }
  std::int64_t all_heads(const AttentionOptions& a) const override { return a.n_experts; }
  bool has_fixed_heads() const override { return false; }

  Sizes matrices(const AttentionOptions& a, Exact d) const override {
    const Exact one = d * a.d_head;
    return {one * a.n_experts, one * a.key_projections(), one, one * a.n_experts};
  }
  // Each of the E heads has a separate output bias.
  Sizes other_tensors(const AttentionOptions& a, Exact d) const override {
    const Exact e = a.d_head;
    return Sizes(a.noisy_routing ? 2 : 1, d * a.n_experts) +
           (a.bias ? Sizes{e * a.n_experts, e * a.key_projections(), e, d * a.n_experts} : Sizes());
  }

  ProjectionProducts products(const AttentionOptions& a, Exact d, const AttentionExtent& extent) const override {
    const Exact router = d * a.n_experts * extent.queries;
    return {.projections = detail::projection_macs(a, d, extent),
            .selection = router,
            .noise = a.noisy_routing ? router : 0};
  }

  // MACs (2H + 2)deT + 2HTe + EdT, floats (2H + 2)eT + CET (SwitchHead Eq. 15).
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact projected = (Exact(a.n_heads) + 1) * 2 * a.d_head * z.t, router = a.n_experts;
    return {.macs = projected * z.d + z.t * 2 * a.n_heads * a.d_head + router * z.d * z.t,
            .memory = projected + router * z.s};
  }

  // 2CdTe MACs and 2Te floats.
  PaperTerms paper_positions(const AttentionOptions& a, const PaperSizes& z) const override {
    return {.macs = z.s * 2 * z.d * a.d_head, .memory = z.t * 2 * a.d_head};
  }

  Exact cache_elements(const AttentionOptions& a) const override { return detail::keys_and_value(a); }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions& a) const override {
    return {{"switch", a.switch_coefficient},
            {"switch_slots", a.switch_slots_coefficient},
            {"cv", a.cv_coefficient},
            {"z", a.z_coefficient},
            {"routing_entropy", a.entropy_coefficient}};
  }

  bool starts_truncated() const override { return false; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} of {}", a.n_heads, a.n_experts);
  }
  std::int64_t d_head_step() const override { return 4; }
  void set_heads(AttentionOptions& a, std::int64_t n_heads) const override {
    a.n_heads = a.top_k = std::min(n_heads, a.n_experts);
  }
};

const Registration<RoutedHeads> kRoutedHeads;

}  // namespace
}  // namespace headroom::config
