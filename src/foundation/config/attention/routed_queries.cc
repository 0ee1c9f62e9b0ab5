// projection = "routed_queries": in each of G groups of query heads, which share one key head and one value head, a
// router selects the k of E heads that a token uses (grouped query experts). With G = 1 this is "routed_heads" (MoA).
//
// k = top_k, E = heads that a router chooses among; a layer computes H = G k of its G E query heads.
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class RoutedQueries : public ProjectionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override { detail::describe_router(fields, o); }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::int64_t top_k = a.of<RoutingOptions>().top_k;
    check.require(a.n_kv_heads > 0, "n_kv_heads",
                  "must be at least 1 with {}, which routes each token among the query heads that share a key and "
                  "value head, got 0",
                  detail::setting("projection", a.projection));
    detail::check_groups(check, a);
    check.require(top_k <= router_width(a), "top_k", "must be at most n_heads / n_kv_heads = {}, got {}",
                  router_width(a), top_k);
    const Gate gate = a.of<RoutingOptions>().gate;
    check.require(gate != Gate::softmax_top_k, "gate",
                  "must be \"sigmoid\", \"softmax\" or \"softmax_renormalised\" with {}, got \"{}\"",
                  detail::setting("projection", a.projection), name_of(gate));
  }

  std::vector<Example> examples() const override {
    return {{"routed_queries", [](AttentionOptions& o) {
               o.n_heads = 6;
               o.n_kv_heads = 2;
               o.of<RoutingOptions>().top_k = 2;
             }}};
  }

  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.kv_heads(); }
  std::int64_t computed_heads(const AttentionOptions& a) const override {
    return kv_heads(a) * a.of<RoutingOptions>().top_k;
  }
  std::int64_t router_width(const AttentionOptions& a) const override { return a.n_heads / kv_heads(a); }

  std::int64_t position_heads(const AttentionOptions& a) const override { return kv_heads(a); }
  bool has_fixed_heads() const override { return false; }

  Sizes matrices(const AttentionOptions& a, Exact d) const override {
    const Exact one = d * a.d_head, groups = kv_heads(a);
    return {one * all_heads(a), groups * one * a.key_projections(), groups * one, one * all_heads(a)};
  }
  // Each query head has a separate output bias.
  Sizes other_tensors(const AttentionOptions& a, Exact d) const override {
    const Exact e = a.d_head, groups = kv_heads(a);
    return Sizes(a.of<RoutedHeadOptions>().noisy_routing ? 2 : 1, d * all_heads(a)) +
           (a.bias ? Sizes{e * all_heads(a), groups * e * a.key_projections(), groups * e, d * all_heads(a)} : Sizes());
  }

  ProjectionProducts products(const AttentionOptions& a, Exact d, const AttentionExtent& extent) const override {
    const Exact router = d * all_heads(a) * extent.queries;
    return {.projections = detail::projection_macs(a, d, extent),
            .selection = router,
            .noise = a.of<RoutedHeadOptions>().noisy_routing ? router : 0};
  }

  // MACs (2H + 2G)deT + 2HTe + GEdT, floats (2H + 2G)eT + CGET (SwitchHead Eq. 15 for G = 1).
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = computed_heads(a), router = all_heads(a);
    const Exact projected = (heads + kv_heads(a)) * 2 * a.d_head * z.t;
    return {.macs = projected * z.d + z.t * 2 * heads * a.d_head + router * z.d * z.t,
            .memory = projected + router * z.s};
  }

  // 2CGdTe MACs and 2GTe floats.
  PaperTerms paper_positions(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact channels = Exact(kv_heads(a)) * 2 * a.d_head;
    return {.macs = z.s * z.d * channels, .memory = z.t * channels};
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
  std::int64_t d_head_step() const override { return 4; }

  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} of {} ({} kv)", computed_heads(a), a.n_heads, kv_heads(a));
  }
};

const Registration<RoutedQueries> kRoutedQueries("routed_queries",
                                                 "query heads routed per token in groups that share keys and values");

}  // namespace
}  // namespace headroom::config
