// Shared by several attention parts: heads with one matrix each, scores of every pair, several keys per position,
// sinusoids.
#pragma once

#include <string>
#include <utility>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::config::detail {

inline bool is_source(char which) {
  return which == 'k' || which == 'v';
}

// Adds an option that means nothing without its part: Field::refuse_unused.
template <class... Arguments>
void add_strict(Fields& fields, std::string key, Arguments&&... arguments) {
  fields.add(std::move(key), std::forward<Arguments>(arguments)...).refuse_unused = true;
}

// Adds kv_rank and q_rank.
void describe_ranks(Fields& fields, AttentionOptions& options);
// Adds the options of routing: n_experts, top_k, gate and expert_dropout.
void describe_routing(Fields& fields, AttentionOptions& options);
void describe_n_experts(Fields& fields, AttentionOptions& options);
void describe_top_k(Fields& fields, AttentionOptions& options);
void describe_gates(Fields& fields, AttentionOptions& options);  // gate and expert_dropout
// Adds switch_coefficient.
void describe_switch_loss(Fields& fields, AttentionOptions& options);

// Throws UserError unless n_kv_heads divides n_heads.
void check_groups(const Checker& check, const AttentionOptions& options);

// Projections of dense, expert and gated heads: each of q, k, v and o is one matrix or one bank of experts per head.
class HeadProjections : public ProjectionPart {
 public:
  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.kv_heads(); }
  std::int64_t value_width(const AttentionOptions& a) const override {
    return a.score->value_width(a) * a.composition->value_factor(a);
  }
  bool has_projected_heads() const override { return has_head_matrices(); }

  // MACs: 2(H + G)Tde. Floats: 2(H + G)Te; with other widths than e, their sum. Relative positions: 2CTdHe MACs, 2CTHe
  // floats (SwitchHead Eq. 11, 12).
  PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const override;
  PaperTerms paper_positions(const AttentionOptions& options, const PaperSizes& sizes) const override;

  std::int64_t d_head_step() const override { return 4; }  // the papers' expert kernels require multiples of 4
};

// Scores that compare every query with every key and weight the values: dot products, sigmoids, Gaussian mixtures.
class ScoreMatrix : public ScorePart {
 public:
  std::int64_t key_components(const AttentionOptions&) const override { return 1; }
  std::int64_t key_projections(const AttentionOptions&) const override { return 1; }
  bool has_scores() const override { return true; }
  bool is_bilinear() const override { return true; }
  bool is_normalised() const override { return true; }

  // There are R + 1 matrices: C T^2 H (R e + w) MACs, (R + 1) C T^2 H floats.
  PaperTerms paper(const AttentionOptions& a, const PaperSizes& z) const override {
    const Exact pairs = a.projection->paper_pairs(a, z);
    return {.macs = pairs * channels(a), .memory = pairs * (Exact(a.key_components()) + 1)};
  }

  bool keeps_width() const override { return false; }

 private:
  static Exact channels(const AttentionOptions& a) { return Exact(a.d_head) * a.key_components() + a.value_width(); }
};

// Adds the options of several keys per position (Transformer-MGK, section 2).
void describe_key_mixture(Fields& fields, AttentionOptions& options);
void check_prior(const Checker& check, const AttentionOptions& options);
// Adds formula, mask, learned and normalise (score = "dot").
void describe_formula(Fields& fields, DotOptions& options);
void check_formula(const Checker& check, const AttentionOptions& options);
// Returns the elements that the reference saves for the backward pass of a formula; 0 if the kernels compute it.
Exact saved_by_formula(const AttentionOptions& options, const AttentionExtent& extent);
// Throws UserError if prior_update = "soft_e", which requires the Gaussian mixture.
void check_no_soft_e(const Checker& check, const AttentionOptions& options);

// Returns the cost, in the paper's accounting, of the keys beyond one per position. Separate keys are projected; all
// keys are stored.
PaperTerms more_keys(const AttentionOptions& options, const PaperSizes& sizes);

}  // namespace headroom::config::detail
