#include "attention_parts.h"

#include <algorithm>
#include <array>

namespace headroom::cost {

using namespace config;

namespace {

constexpr std::int64_t kChunk = 64;  // queries that causal linear attention takes at once

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_source(char which) {
  return which == 'k' || which == 'v';
}

Exact projection_macs(const AttentionOptions& a, Exact d, const Span& span) {
  Exact macs = 0;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const Exact rows = is_source(which) ? span.sources * a.computed_kv_heads() : span.queries * a.n_heads;
    const Exact chosen = a.has_experts(which) ? a.top_k : 1;
    macs += rows * d * a.d_head * chosen * (which == 'k' ? a.key_projections() : 1);
  }
  return macs;
}

Exact selection_macs(const AttentionOptions& a, Exact d, const Span& span) {
  if (a.projection != Projection::experts) {
    return d * selection_width(a) * span.queries;
  }
  const Exact source = a.selects_source() ? span.sources : 0, destination = a.selects_destination() ? span.queries : 0;
  // Shared, and the queries are among the sources: each token once.
  const bool once = a.shared_selection && a.selects_source() && span.self;
  return d * selection_width(a) * (once ? source : source + destination);
}

// Linear attention: queries meet the keys of their chunk, and all before them through the state. The first chunk
// without memory finds no state, the last one leaves none.
Exact linear_macs(const AttentionOptions& a, const Span& span) {
  const Exact square = Exact(a.d_head) * a.d_head;
  if (!span.causal) {
    return square * (span.sources * a.computed_kv_heads() + span.queries * a.n_heads);
  }
  const std::int64_t t = span.queries.value(), rest = t % kChunk, before = span.sources.value() - t;
  const Exact inside = Exact(t / kChunk) * kChunk * kChunk + Exact(rest) * rest;
  const Exact reading = before > 0 ? t : t - std::min(t, kChunk), kept = before + (t - 1) / kChunk * kChunk;
  return (inside * a.d_head * 2 + reading * square) * a.n_heads + kept * square * a.computed_kv_heads();
}

// Relative positions that occur: those of the past, and of later keys where they are seen.
Exact offsets_of(const AttentionOptions& a, const Span& span) {
  if (a.position != Position::relative || !span.self) {
    return 0;
  }
  return span.causal ? span.sources : span.sources + (span.queries.value() - 1);
}

Exact score_macs(const AttentionOptions& a, const Span& span) {
  if (a.score == Score::linear) {
    return linear_macs(a, span);
  }
  const Exact columns = span.sources * (a.key_components() + 1) + offsets_of(a, span);  // + 1: the values
  return span.queries * columns * a.d_head * a.n_heads;
}

Exact compose_macs(const AttentionOptions& a, Exact d, const Span& span) {
  Exact macs = 0;
  const Exact matrix = span.queries * span.sources * a.n_heads;
  if (a.has_static_map()) {
    macs += matrix * heads_of_group(a);
  }
  if (a.composition == Composition::dynamic) {
    for (const auto& [side, tokens] : {std::pair("query", span.queries), std::pair("key", span.sources)}) {
      const ComposeSide made = compose_side(a, d, side);
      macs += made.factor_parameters * tokens;
      macs += made.low_rank ? matrix * a.compose_rank * 2 : 0;  // gates multiply element by element
    }
  }
  return macs * compose_stages(a);
}

Exact bias_parameters(const AttentionOptions& a, Exact d) {
  const Exact queries = is_routed(a) ? a.n_experts : a.n_heads;
  const Exact sources = Exact(a.computed_kv_heads()) * (a.key_projections() + 1);
  // Routed heads: each brings an output bias of its own.
  return (queries + sources) * a.d_head + (is_routed(a) ? d * a.n_experts : d);
}

Exact score_parameters(const AttentionOptions& a, Exact sources) {
  const Exact components = a.key_components();
  const Exact kv = a.computed_kv_heads();
  Exact n = 0;
  if (a.score != Score::dot && a.keys == Keys::shifted) {
    n += components * kv * a.d_head;
  }
  if (a.has_prior() && a.prior_update == PriorUpdate::gradient) {
    const Exact weights = a.prior == Prior::layer ? 1 : a.prior == Prior::head ? kv : kv * sources;
    n += components * weights;
  }
  return n;
}

Exact compose_parameters(const AttentionOptions& a, Exact d) {
  Exact n = a.has_static_map() ? Exact(a.n_heads) * heads_of_group(a) : 0;
  if (a.composition == Composition::dynamic) {
    n += compose_side(a, d, "query").factor_parameters + compose_side(a, d, "key").factor_parameters;
  }
  return n * compose_stages(a);
}

}  // namespace

std::int64_t selection_width(const AttentionOptions& a) {
  switch (a.projection) {
    case Projection::dense:
      return 0;
    case Projection::experts:
      return (Exact(a.n_experts) * a.n_heads).value();
    case Projection::routed_heads:
      return a.n_experts;
    case Projection::gated_heads:
      return a.n_heads;
  }
  return 0;
}

std::int64_t compose_stages(const AttentionOptions& a) {
  return (a.composes("pre") ? 1 : 0) + (a.composes("post") ? 1 : 0);
}

ComposeSide compose_side(const AttentionOptions& a, Exact d, const std::string& side) {
  ComposeSide made;
  const Exact heads = a.n_heads;
  if (contains(a.compose_low_rank, side)) {
    const Exact hidden = Exact(2) * a.compose_rank * heads_of_group(a);  // of each group
    made.factors += heads * a.compose_rank * 2;
    made.factor_parameters += hidden * a.compose_groups * d + hidden * made.factors;
    made.low_rank = true;
  }
  if (contains(a.compose_gates, side)) {
    made.factors += heads;
    made.factor_parameters += d * heads;
  }
  return made;
}

AttentionProducts attention_products(const AttentionOptions& a, Exact d, const Span& span) {
  AttentionProducts products;
  products.projections = projection_macs(a, d, span);
  products.selection = selection_macs(a, d, span);
  products.scores = score_macs(a, span);
  products.composition = compose_macs(a, d, span);
  products.positions = offsets_of(a, span) * d * a.d_head * (is_routed(a) ? 1 : a.n_heads);
  products.noise = a.noisy_routing ? d * a.n_experts * span.queries : 0;
  return products;
}

Exact attention_parameters(const AttentionOptions& a, Exact d, Exact sources) {
  const bool routed = is_routed(a);
  const Exact d_heads = d * a.d_head;  // one projection of one head
  Exact n = 0;
  for (const char which : {'q', 'k', 'v', 'o'}) {
    const Exact heads = is_source(which) ? a.computed_kv_heads() : (routed ? a.n_experts : a.n_heads);
    n += heads * d_heads * (a.has_experts(which) ? a.n_experts : 1) * (which == 'k' ? a.key_projections() : 1);
  }
  n += a.bias ? bias_parameters(a, d) : 0;
  n += d * selection_width(a) * (a.projection == Projection::experts ? a.n_selections() : 1);
  n += a.noisy_routing ? d * a.n_experts : 0;
  n += score_parameters(a, sources);
  n += compose_parameters(a, d);
  const std::int64_t position_heads = routed ? 1 : a.n_heads;
  n += a.position == Position::relative ? d_heads * position_heads : 0;
  n += a.position_bias ? Exact(2) * position_heads * a.d_head : 0;
  n += a.qk_norm ? Exact(2) * a.d_head : 0;
  n += a.scale == Scale::learned ? 1 : 0;
  return n;
}

}  // namespace headroom::cost
