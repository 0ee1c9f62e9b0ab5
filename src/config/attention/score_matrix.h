// What scores share that give each pair of query and key a number and weigh the values by what becomes of it.
#pragma once

#include "headroom/config/attention_part.h"

namespace headroom::config::detail {

class ScoreMatrix : public ScorePart {
 public:
  std::int64_t key_components(const AttentionOptions&) const override { return 1; }
  std::int64_t key_projections(const AttentionOptions&) const override { return 1; }
  bool has_scores() const override { return true; }

  // No parameters besides the shared ones.
  Exact parameters(const AttentionOptions&, Exact) const override { return 0; }

  // T S e a head for each key of a position and for the value, invisible pairs included.
  Exact products(const AttentionOptions& a, const Span& span) const override {
    return span.queries * span.sources * a.d_head * a.n_heads * (Exact(a.key_components()) + 1);
  }

  // R + 1 matrices: (R + 1) C T^2 H e MACs, (R + 1) C T^2 H numbers.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact matrices = z.t * z.s * a.n_heads * (Exact(a.key_components()) + 1);
    return {.macs = matrices * a.d_head, .memory = matrices};
  }

  std::optional<Exact> state_numbers(const AttentionOptions&) const override { return std::nullopt; }
  bool keeps_width() const override { return false; }
};

}  // namespace headroom::config::detail
