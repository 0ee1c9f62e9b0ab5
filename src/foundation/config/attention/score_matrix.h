// What scores share that give each pair of query and key a number and weigh the values by what becomes of it.
#pragma once

#include "headroom/config/attention_part.h"

namespace headroom::config::detail {

class ScoreMatrix : public ScorePart {
 public:
  std::int64_t key_components(const AttentionOptions&) const override { return 1; }
  std::int64_t key_projections(const AttentionOptions&) const override { return 1; }
  bool has_scores() const override { return true; }
  bool is_bilinear() const override { return true; }
  bool is_normalised() const override { return true; }

  // No parameters besides the shared ones.
  Sizes tensors(const AttentionOptions&, Exact) const override { return {}; }

  // T S e a head for each key of a position and T S w for the value, invisible pairs included.
  Exact products(const AttentionOptions& a, const Span& span) const override {
    return span.queries * span.sources * a.n_heads * channels(a);
  }

  // R + 1 matrices: C T^2 H (R e + w) MACs, (R + 1) C T^2 H numbers.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact pairs = z.t * z.s * a.n_heads;
    return {.macs = pairs * channels(a), .memory = pairs * (Exact(a.key_components()) + 1)};
  }

  std::optional<Exact> state_numbers(const AttentionOptions&) const override { return std::nullopt; }
  bool keeps_width() const override { return false; }

 private:
  static Exact channels(const AttentionOptions& a) { return Exact(a.d_head) * a.key_components() + a.value_width(); }
};

}  // namespace headroom::config::detail
