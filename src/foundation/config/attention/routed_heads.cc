// Projections whose query heads are routed: a router selects the experts whose heads a token uses.
//
// projection = "routed_heads": one router selects k of E experts. An expert is a query head, and all share one key head
// and one value head (MoA), or a group of G query heads, one for each of G key and value heads (JetMoE). H = k G.
//
// projection = "routed_queries": in each of G groups of query heads, which share one key head and one value head, a
// router selects k of E heads (grouped query experts). H = G k of G E query heads. With G = 1 this is MoA.
#include <algorithm>

#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class RoutedProjection : public ProjectionPart {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    auto& own = o.of<RoutedHeadOptions>();
    detail::describe_top_k(fields, o);
    detail::describe_gates(fields, o);
    detail::add_strict(
        fields, "noisy_routing", own.noisy_routing,
        "routed heads: noise on the router's scores in training, of standard deviation softplus(x W) + 0.01");
    detail::describe_switch_loss(fields, o);
    fields.add("switch_slots_coefficient", own.switch_slots_coefficient, at_least(0),
               "routed heads: weight of the same loss as MoA's released code computes it");
    fields.add("cv_coefficient", own.cv_coefficient, at_least(0),
               "routed heads: weight of the squared coefficient of variation of the heads' weights");
    fields.add("z_coefficient", own.z_coefficient, at_least(0),
               "routed heads: weight of the mean squared logsumexp of the router's scores");
    fields.add("entropy_coefficient", own.entropy_coefficient, at_least(0),
               "routed heads: weight of the negative entropy of the mean routing distribution");
  }

  bool routes(const AttentionOptions&) const override { return true; }
  bool has_fixed_heads() const override { return false; }
  bool starts_truncated() const override { return false; }
  std::int64_t d_head_step() const override { return 4; }

  // With N experts in all groups: MACs (2H + 2G)deT + 2HTe + NdT, floats (2H + 2G)eT + CNT (SwitchHead Eq. 15, with
  // G = 1).
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact heads = computed_heads(a), router = n_experts(a);
    const Exact projected = (heads + kv_heads(a)) * 2 * a.d_head * z.t;
    return {.macs = projected * z.d + z.t * 2 * heads * a.d_head + router * z.d * z.t,
            .memory = projected + router * z.s};
  }
  // For each of P heads with positions: 2CdTe MACs and 2Te floats.
  PaperTerms paper_positions(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact channels = Exact(position_heads(a)) * 2 * a.d_head;
    return {.macs = z.s * z.d * channels, .memory = z.t * channels};
  }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions& a) const override {
    const auto& own = a.of<RoutedHeadOptions>();
    return {{"switch", own.switch_coefficient},
            {"switch_slots", own.switch_slots_coefficient},
            {"cv", own.cv_coefficient},
            {"z", own.z_coefficient},
            {"routing_entropy", own.entropy_coefficient}};
  }

 private:
  static bool noisy(const AttentionOptions& a) { return a.of<RoutedHeadOptions>().noisy_routing; }
  // Returns the experts of all groups.
  std::int64_t n_experts(const AttentionOptions& a) const { return all_heads(a) / heads_per_expert(a); }
};

class RoutedHeads : public RoutedProjection {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::describe_n_experts(fields, o);
    RoutedProjection::describe(fields, o);
    detail::add_strict(fields, "output_bias", o.of<RoutedHeadOptions>().output_bias,
                       "routed_heads: one bias of the layer's output (JetMoE)");
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
  // The number of heads in an expert. If n_kv_heads equals n_heads, each expert is a group of heads only when a token
  // uses a single expert.
  std::int64_t kv_heads(const AttentionOptions& a) const override {
    const bool one_expert = a.of<RoutingOptions>().top_k == 1;
    return a.n_kv_heads > 1 && (a.n_kv_heads < a.n_heads || one_expert) ? a.n_kv_heads : 1;
  }
  std::int64_t position_heads(const AttentionOptions&) const override { return 1; }
  std::int64_t all_heads(const AttentionOptions& a) const override { return router_width(a) * kv_heads(a); }

  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} of {}", a.n_heads, all_heads(a));
  }
  void derive_top_k(AttentionOptions& a) const override {
    a.of<RoutingOptions>().top_k = std::max<std::int64_t>(a.n_heads / kv_heads(a), 1);
  }
  void set_heads(AttentionOptions& a, std::int64_t n_heads) const override {
    const std::int64_t group = kv_heads(a);
    a.of<RoutingOptions>().top_k = std::clamp<std::int64_t>(n_heads / group, 1, router_width(a));
    a.n_heads = a.of<RoutingOptions>().top_k * group;
  }
};

class RoutedQueries : public RoutedProjection {
 public:
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

  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} of {} ({} kv)", computed_heads(a), a.n_heads, kv_heads(a));
  }
};

const Registration<RoutedHeads> kRoutedHeads("routed_heads", "heads routed per token (MoA)");
const Registration<RoutedQueries> kRoutedQueries("routed_queries",
                                                 "query heads routed per token in groups that share keys and values");

// projection = "shared_and_routed": dense heads with gates on their outputs. The first shared_heads are used by every
// token; of the others, each token uses the top_k (MoH). All heads are computed.
//
// Symbols in addition to those of attention_part.h: s = shared_heads, E = H - s routed heads, k = top_k.
class SharedAndRouted : public detail::HeadProjections {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    detail::add_strict(fields, "shared_heads", o.of<SharedHeadOptions>().shared_heads, between(0, 65536),
                       "shared_and_routed: heads that every token uses, the first ones of n_heads");
    detail::describe_top_k(fields, o);
    detail::describe_switch_loss(fields, o);
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const std::int64_t top_k = a.of<RoutingOptions>().top_k;
    detail::check_groups(check, a);
    check.require(shared(a) < a.n_heads, "shared_heads", "must be below n_heads = {}, got {}", a.n_heads, shared(a));
    check.require(top_k <= router_width(a), "top_k", "must be at most n_heads - shared_heads = {} with {}, got {}",
                  router_width(a), detail::setting("projection", a.projection), top_k);
  }

  std::vector<Example> examples() const override {
    const auto example = [](std::string name, std::int64_t shared_heads) {
      return Example{std::move(name), [shared_heads](AttentionOptions& o) {
                       o.n_heads = 4;
                       o.of<SharedHeadOptions>().shared_heads = shared_heads;
                       o.of<RoutingOptions>().top_k = 2;
                     }};
    };
    return {example("shared_and_routed", 2), example("shared_and_routed, one shared head", 1)};
  }

  bool routes(const AttentionOptions&) const override { return true; }
  std::int64_t router_width(const AttentionOptions& a) const override { return a.n_heads - shared(a); }

  // The scores, and the multiplication of the head outputs by the gates, add (E + s + 2)dT + HTe MACs and (E + s + 2)T
  // floats to dense heads.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact routed = z.t * scores(a);
    return HeadProjections::paper(a, z) +
           PaperTerms{.macs = routed * z.d + z.t * a.n_heads * a.d_head, .memory = routed};
  }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions& a) const override {
    return {{"switch", a.of<RoutedHeadOptions>().switch_coefficient}};
  }

  bool starts_truncated() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} ({} shared, {} of {} routed)", a.n_heads, shared(a), a.of<RoutingOptions>().top_k,
                       router_width(a));
  }
  std::int64_t d_head_step() const override { return 1; }

 private:
  static std::int64_t shared(const AttentionOptions& a) { return a.of<SharedHeadOptions>().shared_heads; }
  std::int64_t scores(const AttentionOptions& a) const {
    return router_width(a) + (shared(a) > 1 ? shared(a) : 0) + (shared(a) > 0 ? 2 : 0);
  }
};

const Registration<SharedAndRouted> kSharedAndRouted("shared_and_routed",
                                                     "dense, with shared heads and top_k routed heads per token (MoH)");

}  // namespace
}  // namespace headroom::config
