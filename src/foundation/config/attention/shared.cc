#include "shared.h"

#include "foundation/config/checker.h"
#include "headroom/config/part_options.h"

namespace headroom::config {

std::int64_t ProjectionPart::rotary_channels(const AttentionOptions& a) const {
  return static_cast<std::int64_t>(a.of<PositionOptions>().rope_fraction * static_cast<double>(a.d_head) +
                                   1e-9);  // 0.1 * 30 must give 3
}

std::int64_t ProjectionPart::router_width(const AttentionOptions& a) const {
  return a.of<RoutingOptions>().n_experts;
}

std::int64_t ScorePart::projected_heads(const AttentionOptions& a, char which) const {
  return detail::is_source(which) ? a.kv_heads() : a.n_heads;
}

namespace detail {

void describe_ranks(Fields& fields, AttentionOptions& o) {
  auto& ranks = o.of<LatentOptions>();
  add_strict(fields, "kv_rank", ranks.kv_rank, between(1, 65536),
             "latent: channels of the vector that a token's keys and values are computed from; factored: rank of a "
             "token's keys, and of its values");
  add_strict(fields, "q_rank", ranks.q_rank, between(0, 65536),
             "latent, factored: the same for queries; 0: queries are projected by one matrix");
}

void describe_n_experts(Fields& fields, AttentionOptions& o) {
  fields.add(
      "n_experts", o.of<RoutingOptions>().n_experts, between(1, 1 << 20),
      "experts: number per head and projection; routed_heads: number of heads, or of groups of heads, to route to");
}

void describe_routing(Fields& fields, AttentionOptions& o) {
  describe_n_experts(fields, o);
  describe_top_k(fields, o);
  describe_gates(fields, o);
}

void describe_top_k(Fields& fields, AttentionOptions& o) {
  fields.add("top_k", o.of<RoutingOptions>().top_k, between(1, 1 << 20),
             "experts: experts per token, head and projection; routed_heads: n_heads, or n_heads / n_kv_heads, need "
             "not be set; gated_heads, shared_and_routed: routed heads per token; routed_queries: query heads per "
             "token in each group of n_heads / n_kv_heads");
}

void describe_gates(Fields& fields, AttentionOptions& o) {
  auto& routing = o.of<RoutingOptions>();
  fields.add(
      "gate", routing.gate,
      "weights of the top_k: sigmoid of each score, or softmax over the top_k (experts, routed_heads); sigmoid, "
      "softmax over all, or softmax over all renormalised to sum to 1 (routed_heads, routed_queries, gated_heads)");
  fields.add("expert_dropout", routing.expert_dropout, at_least_below(0, 1),
             "probability that an expert is excluded from routing in training");
}

void describe_switch_loss(Fields& fields, AttentionOptions& o) {
  fields.add("switch_coefficient", o.of<RoutedHeadOptions>().switch_coefficient, at_least(0),
             "routed heads: weight of the load-balancing loss E sum_e P_e F_e");
}

void check_groups(const Checker& check, const AttentionOptions& a) {
  check.require(a.kv_heads() <= a.n_heads && a.n_heads % a.kv_heads() == 0, "n_kv_heads",
                "must divide n_heads = {}, got {}", a.n_heads, a.n_kv_heads);
}

PaperTerms HeadProjections::paper(const AttentionOptions& a, const PaperSizes& z) const {
  Exact projected = 0;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    if (!is_source(which) || a.share_kv == 0) {
      projected += z.t * a.score->projected_heads(a, which) * a.projected_width(which);
    }
  }
  return {.macs = projected * z.d, .memory = projected};
}

PaperTerms HeadProjections::paper_positions(const AttentionOptions& a, const PaperSizes& z) const {
  const Exact projected = z.s * 2 * a.attention_matrices() * a.d_head;
  return {.macs = projected * z.d, .memory = projected};
}

void describe_key_mixture(Fields& fields, AttentionOptions& o) {
  auto& mixture = o.of<MixtureOptions>();
  add_strict(fields, "keys", mixture.keys,
             "gaussian_mixture, linear: components have their own projections, are shifted copies of one projection, "
             "or there is only one");
  fields.add("n_mixtures", mixture.n_mixtures, between(1, 1024),
             "gaussian_mixture, linear: number of components, keys at each position");
  fields.add("prior", mixture.prior,
             "weights of the components: equal (none), per layer, per head, or per head and key position");
  fields.add("prior_update", mixture.prior_update,
             "how the prior is learned: not at all (none), by gradient, or from responsibilities (soft_e)");
  fields.add("prior_clamp", mixture.prior_clamp, "clamp a prior learned by gradient to 0..1");
  fields.add("shift_std", mixture.shift_std, at_least(0),
             "keys = shifted: initial standard deviation of the shifts (the first one is 0)");
}

void check_no_soft_e(const Checker& check, const AttentionOptions& a) {
  check.require(a.of<MixtureOptions>().prior_update != PriorUpdate::soft_e, "prior_update",
                "\"soft_e\" needs score = \"gaussian_mixture\", not \"{}\"", name_of(a.score));
}

void check_prior(const Checker& check, const AttentionOptions& a) {
  const auto& mixture = a.of<MixtureOptions>();
  check.require(mixture.keys != Keys::single || mixture.prior == Prior::none || mixture.prior == MixtureOptions().prior,
                "prior", "\"{}\" needs several keys at each position, not keys = \"single\"", name_of(mixture.prior));
}

PaperTerms more_keys(const AttentionOptions& a, const PaperSizes& z) {
  const Exact one_key = z.t * a.computed_kv_heads() * a.d_head;
  const Exact work = a.has_experts('k') ? (z.d + 1) * a.of<RoutingOptions>().top_k : z.d;
  return {.macs = one_key * (a.key_projections() - 1) * work, .memory = one_key * (a.key_components() - 1)};
}

}  // namespace detail
}  // namespace headroom::config
