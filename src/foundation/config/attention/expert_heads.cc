// projection = "experts": any of q, k, v and o is a bank of experts in every head, and each token is routed to top_k of
// them (SwitchHead).
#include "foundation/config/checker.h"
#include "shared.h"

namespace headroom::config {
namespace {

class ExpertHeads : public detail::HeadProjections {
 public:
  void describe(Fields& fields, AttentionOptions& o) const override {
    fields.add("experts", o.of<ExpertOptions>().experts, {"q", "k", "v", "o"},
               "experts: the projections with banks of experts: query, key, value, output");
    detail::describe_routing(fields, o);
    detail::add_strict(
        fields, "shared_selection", o.of<ExpertOptions>().shared_selection,
        "experts: route keys and values (source) like queries and outputs (destination), instead of separately");
    detail::add_strict(
        fields, "expert_entropy_coefficient", o.of<ExpertOptions>().expert_entropy_coefficient, at_least(0),
        "experts: weight of the negative entropy of each mean routing distribution, averaged over heads (MoEUT)");
  }

  void check(const detail::Checker& check, const ModelOptions& model) const override {
    const AttentionOptions& a = model.attention;
    const auto& own = a.of<ExpertOptions>();
    const auto& routing = a.of<RoutingOptions>();
    detail::check_groups(check, a);
    const std::string projection = detail::setting("projection", a.projection);
    check.require(routing.top_k <= routing.n_experts, "top_k", "must be at most n_experts = {}, got {}",
                  routing.n_experts, routing.top_k);
    const bool over_all = routing.gate == Gate::softmax || routing.gate == Gate::softmax_renormalised;
    check.require(!over_all, "gate", "must be \"sigmoid\" or \"softmax_top_k\" with {}, got \"{}\"", projection,
                  name_of(routing.gate));
    check.require(!own.experts.empty(), "experts", "must name at least one of \"q\", \"k\", \"v\", \"o\" with {}",
                  projection);
    check.require_distinct("experts", own.experts);
    check.require(!own.on_source() || a.kv_heads() == a.n_heads, "n_kv_heads",
                  "must be n_heads = {} if keys or values are experts, which every head routes separately, got {}",
                  a.n_heads, a.n_kv_heads);
  }

  std::vector<Example> examples() const override {
    return {{"experts v o", [](AttentionOptions&) {}},
            {"experts q k v o", [](AttentionOptions& o) {
               o.of<ExpertOptions>() = {.experts = {"q", "k", "v", "o"}, .shared_selection = true};
             }}};
  }

  bool routes(const AttentionOptions& a) const override { return a.of<ExpertOptions>().n_selections() > 0; }
  bool is_bank(const AttentionOptions& a, char which) const override { return a.of<ExpertOptions>().has(which); }

  // MACs: the sum over q, k, v, o of (k (d + 1) if experts else d) H T e, with G instead of H for k and v, plus n_sel E
  // d T C. Floats: 2(H + G)Te + n_sel E T C. These are SwitchHead Eq. 13, 14 as the printed tables were computed: the
  // routing term has no H.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    PaperTerms terms;
    for (const char which : {'q', 'k', 'v', 'o'}) {
      if (detail::is_source(which) && a.share_kv > 0) {
        continue;
      }
      const Exact rows = z.t * a.projected_width(which) * (detail::is_source(which) ? a.kv_heads() : a.n_heads);
      terms.macs += a.has_experts(which) ? rows * a.of<RoutingOptions>().top_k * (z.d + 1)
                                         : rows * z.d;  // + 1: the weighted average
      terms.memory += rows;
    }
    const Exact selected = z.s * a.of<RoutingOptions>().n_experts * a.of<ExpertOptions>().n_selections();
    return terms + PaperTerms{.macs = selected * z.d, .memory = selected};
  }

  // 2HdTe MACs and 2HTe floats: the printed tables omit C here. Without any bank of experts, costs as for dense heads.
  PaperTerms paper_positions(const AttentionOptions& a, const PaperSizes& z) const override {
    if (a.of<ExpertOptions>().n_selections() == 0) {
      return HeadProjections::paper_positions(a, z);
    }
    const Exact projected = z.t * 2 * a.attention_matrices() * a.d_head;
    return {.macs = projected * z.d, .memory = projected};
  }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions& a) const override {
    const double coefficient = a.of<ExpertOptions>().expert_entropy_coefficient;
    return coefficient > 0.0 ? std::vector<BalanceLoss>{{"routing_entropy", coefficient}} : std::vector<BalanceLoss>();
  }
  bool starts_truncated() const override { return false; }
  bool allows_several_maps() const override { return true; }
  std::string heads_text(const AttentionOptions& a) const override {
    return fmt::format("{} ({}/{} experts)", a.n_heads, a.of<RoutingOptions>().top_k, a.of<RoutingOptions>().n_experts);
  }

  std::vector<AttentionOptions> trials(const AttentionOptions& given, std::int64_t dense_heads) const override {
    std::vector<AttentionOptions> all;
    constexpr std::pair<std::int64_t, std::int64_t> kHeadsAndTopK[] = {{2, 2}, {2, 3}, {2, 4}, {4, 2}};
    for (const auto& [n_heads, top_k] : kHeadsAndTopK) {
      const std::int64_t n_experts = dense_heads / n_heads;
      if (n_experts * n_heads == dense_heads && n_experts >= top_k) {
        AttentionOptions trial = given;
        trial.n_heads = n_heads;
        trial.n_kv_heads = 0;
        auto& routing = trial.of<RoutingOptions>();
        routing.n_experts = n_experts;
        routing.top_k = top_k;
        all.push_back(trial);
      }
    }
    return all;
  }
};

const Registration<ExpertHeads> kExpertHeads("experts", "banks of experts (SwitchHead)");

}  // namespace
}  // namespace headroom::config
