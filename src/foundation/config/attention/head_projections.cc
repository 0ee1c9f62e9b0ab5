#include "head_projections.h"

#include "foundation/config/checker.h"

namespace headroom::config::detail {

Exact projection_macs(const AttentionOptions& a, Exact d, const Span& span) {
  Exact macs = 0;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const Exact rows = is_source(which) ? span.sources * a.computed_kv_heads() : span.queries * a.n_heads;
    const Exact chosen = a.has_experts(which) ? a.top_k : 1;
    macs += rows * d * a.d_head * chosen * (which == 'k' ? a.key_projections() : 1);
  }
  return macs;
}

void describe_choice(Fields& fields, AttentionOptions& o) {
  if (fields.has("n_experts")) {
    return;
  }
  fields.add("n_experts", o.n_experts, between(1, 1 << 20),
             "experts: per head and projection; routed_heads: all heads to choose from");
  fields.add("top_k", o.top_k, between(1, 1 << 20),
             "experts: chosen per token, head and projection; routed_heads: must equal n_heads; gated_heads: heads let "
             "through per token");
  fields.add("gate", o.gate,
             "weights of the chosen: sigmoid of each score or softmax over the chosen (experts); sigmoid, softmax over "
             "all or the same with a sum of 1 (routed_heads, gated_heads)");
  fields.add("expert_dropout", o.expert_dropout, at_least_below(0, 1),
             "probability that an expert cannot be chosen while training");
}

void check_groups(const Checker& check, const AttentionOptions& a) {
  check.require(a.kv_heads() <= a.n_heads && a.n_heads % a.kv_heads() == 0, "n_kv_heads",
                "must divide n_heads = {}, got {}", a.n_heads, a.n_kv_heads);
}

Sizes HeadProjections::matrices(const AttentionOptions& a, Exact d) const {
  Sizes all;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const Exact heads = is_source(which) ? a.kv_heads() : a.n_heads;
    all.push_back(heads * d * a.d_head * (a.has_experts(which) ? a.n_experts : 1) *
                  (which == 'k' ? a.key_projections() : 1));
  }
  return all;
}

Sizes HeadProjections::other_tensors(const AttentionOptions& a, Exact d) const {
  const Exact queries = Exact(a.n_heads) * a.d_head, values = Exact(a.kv_heads()) * a.d_head;
  return a.bias ? Sizes{queries, values * a.key_projections(), values, d} : Sizes();
}

ProjectionProducts HeadProjections::products(const AttentionOptions& a, Exact d, const Span& span) const {
  return {.projections = projection_macs(a, d, span)};
}

PaperTerms HeadProjections::paper(const AttentionOptions& a, const PaperSizes& z) const {
  const Exact projected = (Exact(a.n_heads) + a.kv_heads()) * 2 * z.t * a.d_head;
  return {.macs = projected * z.d, .memory = projected};
}

PaperTerms HeadProjections::paper_positions(const AttentionOptions& a, const PaperSizes& z) const {
  const Exact projected = z.s * 2 * a.n_heads * a.d_head;
  return {.macs = projected * z.d, .memory = projected};
}

}  // namespace headroom::config::detail
