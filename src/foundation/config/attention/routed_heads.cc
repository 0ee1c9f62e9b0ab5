// projection = "routed_heads": a router selects the k of E experts that a token uses. An expert is a query head, and
// all share one key head and one value head (MoA), or a group of G query heads, one for each of G key and value heads
// (JetMoE). H = k G.
#include <algorithm>

#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class RoutedHeads : public ProjectionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::describe_n_experts(fields, o);
    detail::describe_router(fields, o);
    fields
        .add("output_bias", o.of<RoutedHeadOptions>().output_bias,
             "routed_heads: one bias of the layer's output (JetMoE)")
        .refuse_unused = true;
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& routing = a.of<RoutingOptions>();
    const std::string projection = detail::setting("projection", a.projection);
    const std::int64_t group = kv_heads(a);
    check.require(a.n_kv_heads <= a.n_heads && a.n_heads % group == 0, "n_kv_heads",
                  "must divide n_heads = {} with {}, whose experts have a query head for each of them, got {}",
                  a.n_heads, projection, a.n_kv_heads);
    check.require(routing.top_k == a.n_heads / group, "top_k", "must equal n_heads{} = {} with {}, got {}",
                  group > 1 ? " / n_kv_heads" : "", a.n_heads / group, projection, routing.top_k);
    check.require(group == 1 || a.gate_output->gates(a) == 0, "gate_output",
                  "must be \"none\" with {} and n_kv_heads = {}, whose experts are groups of heads", projection, group);
    check.require(routing.top_k <= routing.n_experts, "top_k", "must be at most n_experts = {}, got {}",
                  routing.n_experts, routing.top_k);
  }

  std::vector<Example> examples() const override {
    return {{"routed heads", [](AttentionOptions&) {}}, {"routed groups of heads", [](AttentionOptions& o) {
                                                           o.n_kv_heads = o.n_heads / 2;
                                                           o.projection->derive_top_k(o);
                                                           o.of<RoutedHeadOptions>().output_bias = true;
                                                         }}};
  }

  std::int64_t heads_per_expert(const AttentionOptions& a) const override { return kv_heads(a); }
  // G.
  std::int64_t kv_heads(const AttentionOptions& a) const override {
    return a.n_kv_heads > 1 && a.n_kv_heads < a.n_heads ? a.n_kv_heads : 1;
  }
  std::int64_t position_heads(const AttentionOptions&) const override { return 1; }
  std::int64_t all_heads(const AttentionOptions& a) const override { return n_experts(a) * kv_heads(a); }
  bool has_fixed_heads() const override { return false; }

  Sizes matrices(const AttentionOptions& a, Exact d) const override {
    const Exact one = d * a.d_head;
    return {one * all_heads(a), one * kv_heads(a) * a.key_projections(), one * kv_heads(a), one * all_heads(a)};
  }
  // Each of the E experts has a separate output bias.
  Sizes other_tensors(const AttentionOptions& a, Exact d) const override {
    const Exact e = Exact(a.d_head) * kv_heads(a);
    return Sizes(a.of<RoutedHeadOptions>().noisy_routing ? 2 : 1, d * n_experts(a)) +
           (a.bias ? Sizes{e * n_experts(a), e * a.key_projections(), e, d * n_experts(a)} : Sizes()) +
           Sizes(a.of<RoutedHeadOptions>().output_bias ? 1 : 0, d);
  }

  ProjectionProducts products(const AttentionOptions& a, Exact d, const AttentionExtent& extent) const override {
    const Exact router = d * n_experts(a) * extent.queries;
    return {.projections = detail::projection_macs(a, d, extent),
            .selection = router,
            .noise = a.of<RoutedHeadOptions>().noisy_routing ? router : 0};
  }

  // MACs (2H + 2G)deT + 2HTe + EdT, floats (2H + 2G)eT + CET (SwitchHead Eq. 15, with G = 1).
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact projected = (Exact(a.n_heads) + kv_heads(a)) * 2 * a.d_head * z.t, router = n_experts(a);
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
  void derive_top_k(AttentionOptions& a) const override { a.of<RoutingOptions>().top_k = a.n_heads / kv_heads(a); }
  void set_heads(AttentionOptions& a, std::int64_t n_heads) const override {
    const std::int64_t group = kv_heads(a);
    a.of<RoutingOptions>().top_k = std::clamp<std::int64_t>(n_heads / group, 1, n_experts(a));
    a.n_heads = a.of<RoutingOptions>().top_k * group;
  }

 private:
  static std::int64_t n_experts(const AttentionOptions& a) { return a.of<RoutingOptions>().n_experts; }
};

const Registration<RoutedHeads> kRoutedHeads("routed_heads", "heads routed per token (MoA)");

}  // namespace
}  // namespace headroom::config
