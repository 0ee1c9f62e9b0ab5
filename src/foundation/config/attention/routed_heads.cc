// projection = "routed_heads": a router selects the k = H of E query heads that a token uses. All query heads share one
// key head and one value head (MoA).
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class RoutedHeads : public ProjectionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<RoutedHeadOptions>();
    detail::describe_routing(fields, o);
    fields.add("noisy_routing", own.noisy_routing, "routed_heads: learned noise on the router's scores in training")
        .refuse_unused = true;
    fields.add("switch_coefficient", own.switch_coefficient, at_least(0),
               "routed_heads: weight of the load-balancing loss E sum_e P_e F_e");
    fields.add("switch_slots_coefficient", own.switch_slots_coefficient, at_least(0),
               "routed_heads: weight of the same loss as MoA's released code computes it");
    fields.add("cv_coefficient", own.cv_coefficient, at_least(0),
               "routed_heads: weight of the squared coefficient of variation of the heads' weights");
    fields.add("z_coefficient", own.z_coefficient, at_least(0),
               "routed_heads: weight of the mean squared logsumexp of the router's scores");
    fields.add("entropy_coefficient", own.entropy_coefficient, at_least(0),
               "routed_heads: weight of the negative entropy of the mean routing distribution");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& routing = a.of<RoutingOptions>();
    const std::string projection = detail::setting("projection", a.projection);
    check.require(a.n_kv_heads <= 1 || a.n_kv_heads == a.n_heads, "n_kv_heads",
                  "must be 0 or 1 with {}, whose heads share one key and value head, got {}", projection, a.n_kv_heads);
    check.require(routing.top_k <= routing.n_experts, "top_k", "must be at most n_experts = {}, got {}",
                  routing.n_experts, routing.top_k);
    check.require(routing.top_k == a.n_heads, "top_k", "must equal n_heads = {} with {}, got {}", a.n_heads, projection,
                  routing.top_k);
    check.require(routing.gate != Gate::softmax_top_k, "gate",
                  "must be \"sigmoid\", \"softmax\" or \"softmax_renormalised\" with {}, got \"{}\"", projection,
                  name_of(routing.gate));
  }

  std::int64_t kv_heads(const AttentionOptions&) const override { return 1; }
  std::int64_t position_heads(const AttentionOptions&) const override { return 1; }
  std::int64_t all_heads(const AttentionOptions& a) const override { return a.of<RoutingOptions>().n_experts; }
  bool has_fixed_heads() const override { return false; }

  Sizes matrices(const AttentionOptions& a, Exact d) const override {
    const Exact one = d * a.d_head;
    return {one * all_heads(a), one * a.key_projections(), one, one * all_heads(a)};
  }
  // Each of the E heads has a separate output bias.
  Sizes other_tensors(const AttentionOptions& a, Exact d) const override {
    const Exact e = a.d_head;
    return Sizes(a.of<RoutedHeadOptions>().noisy_routing ? 2 : 1, d * all_heads(a)) +
           (a.bias ? Sizes{e * all_heads(a), e * a.key_projections(), e, d * all_heads(a)} : Sizes());
  }

  ProjectionProducts products(const AttentionOptions& a, Exact d, const AttentionExtent& extent) const override {
    const Exact router = d * all_heads(a) * extent.queries;
    return {.projections = detail::projection_macs(a, d, extent),
            .selection = router,
            .noise = a.of<RoutedHeadOptions>().noisy_routing ? router : 0};
  }

  // MACs (2H + 2)deT + 2HTe + EdT, floats (2H + 2)eT + CET (SwitchHead Eq. 15).
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact projected = (Exact(a.n_heads) + 1) * 2 * a.d_head * z.t, router = all_heads(a);
    return {.macs = projected * z.d + z.t * 2 * a.n_heads * a.d_head + router * z.d * z.t,
            .memory = projected + router * z.s};
  }

  // 2CdTe MACs and 2Te floats.
  PaperTerms paper_positions(const AttentionOptions& a, const PaperSizes& z) const override {
    return {.macs = z.s * 2 * z.d * a.d_head, .memory = z.t * 2 * a.d_head};
  }

  Exact cache_elements(const AttentionOptions& a) const override { return detail::keys_and_value(a); }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions& a) const override {
    const auto& own = a.of<RoutedHeadOptions>();
    return {{"switch", own.switch_coefficient},
            {"switch_slots", own.switch_slots_coefficient},
            {"cv", own.cv_coefficient},
            {"z", own.z_coefficient},
            {"routing_entropy", own.entropy_coefficient}};
  }

  bool starts_truncated() const override { return false; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} of {}", a.n_heads, all_heads(a));
  }
  std::int64_t d_head_step() const override { return 4; }
  void derive_top_k(AttentionOptions& a) const override { a.of<RoutingOptions>().top_k = a.n_heads; }
  void set_heads(AttentionOptions& a, std::int64_t n_heads) const override {
    a.n_heads = std::min(n_heads, all_heads(a));
    derive_top_k(a);
  }
};

const Registration<RoutedHeads> kRoutedHeads("routed_heads", "heads routed per token (MoA)");

}  // namespace
}  // namespace headroom::config
