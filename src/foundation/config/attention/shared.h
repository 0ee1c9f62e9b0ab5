// What several parts share: heads with one matrix each, scores of every pair, several keys at a position, sinusoids.
#pragma once

#include "headroom/config/attention_part.h"

namespace headroom::config::detail {

inline bool is_source(char which) {
  return which == 'k' || which == 'v';
}

// MACs of q, k, v and o: T d e a head and S d e a key/value head; keys once for each of their projections, banks once
// for each of the top_k experts.
Exact projection_macs(const AttentionOptions& options, Exact d_model, const AttentionExtent& extent);

// Elements of a token's keys and value: G e for each key and for the value.
inline Exact keys_and_value(const AttentionOptions& a) {
  return Exact(a.computed_kv_heads()) * a.d_head * (a.key_projections() + 1);
}

// The options of routing; added once, by the first part that routes.
void describe_routing(Fields& fields, AttentionOptions& options);

// n_kv_heads must divide n_heads.
void check_groups(const Checker& check, const AttentionOptions& options);

// Dense, expert and gated heads: each of q, k, v and o is one matrix, or one bank of experts, for every head.
class HeadProjections : public ProjectionPart {
 public:
  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.kv_heads(); }

  Sizes matrices(const AttentionOptions& options, Exact d_model) const override;
  Sizes other_tensors(const AttentionOptions& options, Exact d_model) const override;  // biases
  ProjectionProducts products(const AttentionOptions& options, Exact d_model,
                              const AttentionExtent& extent) const override;

  // MACs 2(H + G)Tde, floats 2(H + G)Te; relative positions 2CTdHe and 2CTHe (SwitchHead Eq. 11, 12).
  PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const override;
  PaperTerms paper_positions(const AttentionOptions& options, const PaperSizes& sizes) const override;

  Exact cache_elements(const AttentionOptions& a) const override { return keys_and_value(a); }
  std::int64_t d_head_step() const override { return 4; }  // the papers' expert kernels need multiples of four
};

// Scores that compare each query with each key and weight the values: dot products, sigmoids, Gaussian mixtures.
class ScoreMatrix : public ScorePart {
 public:
  std::int64_t key_components(const AttentionOptions&) const override { return 1; }
  std::int64_t key_projections(const AttentionOptions&) const override { return 1; }
  bool has_scores() const override { return true; }
  bool is_bilinear() const override { return true; }
  bool is_normalised() const override { return true; }

  Sizes tensors(const AttentionOptions&, Exact) const override { return {}; }

  // T S e a head for each key of a position and T S w for the value, masked pairs included.
  Exact products(const AttentionOptions& a, const AttentionExtent& extent) const override {
    return extent.queries * extent.sources * a.n_heads * channels(a);
  }

  // R + 1 matrices: C T^2 H (R e + w) MACs, (R + 1) C T^2 H floats.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact pairs = z.t * z.s * a.n_heads;
    return {.macs = pairs * channels(a), .memory = pairs * (Exact(a.key_components()) + 1)};
  }

  std::optional<Exact> state_elements(const AttentionOptions&) const override { return std::nullopt; }
  bool keeps_width() const override { return false; }

 private:
  static Exact channels(const AttentionOptions& a) { return Exact(a.d_head) * a.key_components() + a.value_width(); }
};

// Several keys at a position (Transformer-MGK, section 2): their options, added once; R; and checks.
void describe_key_mixture(Fields& fields, AttentionOptions& options);
inline std::int64_t components_of(const AttentionOptions& a) {
  return a.keys == Keys::single ? 1 : a.n_mixtures;
}
void check_prior(const Checker& check, const AttentionOptions& options);
// prior_update = "soft_e" needs the Gaussian mixture.
void check_no_soft_e(const Checker& check, const AttentionOptions& options);

// Shifts: R G e elements; a prior learned by gradient: R, R G, or R G S.
Sizes key_mixture_tensors(const AttentionOptions& options, Exact sources);

// Paper accounting of the keys beyond one per position: own keys are projected, and all keys are stored.
PaperTerms more_keys(const AttentionOptions& options, const PaperSizes& sizes);

}  // namespace headroom::config::detail
