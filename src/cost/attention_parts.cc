#include "attention_parts.h"

namespace headroom::cost {

using namespace config;

AttentionProducts attention_products(const AttentionOptions& a, Exact d, const Span& span) {
  const ProjectionProducts projected = a.projection->products(a, d, span);
  const Exact offsets = a.position->offsets(span) * a.d_head;
  return {.projections = projected.projections,
          .gates = span.queries * d * a.n_heads * a.gate_output->gates(a),
          .selection = projected.selection,
          .scores = a.score->products(a, span) + span.queries * offsets * a.n_heads,
          .composition = a.composition->products(a, d, span),
          .positions = offsets * d * a.projection->position_heads(a),
          .noise = projected.noise};
}

PaperTerms paper_output_gate(const AttentionOptions& a, const PaperSizes& z) {
  const Exact heads = z.t * a.n_heads, gates = heads * a.gate_output->gates(a);
  const Exact results = a.gate_output->gates(a) > 0 ? heads * a.value_width() : 0;
  return {.macs = gates * z.d + results, .memory = gates + results};
}

Exact attention_parameters(const AttentionOptions& a, Exact d, Exact sources) {
  Exact n = a.projection->parameters(a, d) + a.score->parameters(a, sources) + a.composition->parameters(a, d) +
            a.position->parameters(a, d);
  n += Exact(a.projection->all_heads(a)) * a.gate_output->gates(a) * (d + (a.bias ? 1 : 0));
  n += a.qk_norm ? Exact(2) * a.d_head : 0;
  n += a.scale == Scale::learned ? 1 : 0;
  return n;
}

}  // namespace headroom::cost
