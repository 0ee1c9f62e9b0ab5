// What dense, expert and gated heads share: each of q, k, v and o is one matrix, or one bank of experts, for every
// head.
#pragma once

#include "headroom/config/attention_part.h"

namespace headroom::config::detail {

// rope_fraction of d_head. A fraction such as 0.1 is a little off: 0.1 * 30 must still give 3 channels.
inline std::int64_t share_that_rotates(const AttentionOptions& a) {
  return static_cast<std::int64_t>(a.rope_fraction * static_cast<double>(a.d_head) + 1e-9);
}

inline bool is_source(char which) {
  return which == 'k' || which == 'v';
}

// MACs of q, k, v and o: T d e a head, S d e a key/value head, the keys once for each of their projections, banks as
// often as experts are chosen.
Exact projection_macs(const AttentionOptions& options, Exact d_model, const Span& span);

// Numbers of a token's keys and value: G e for each key and for the value.
inline Exact keys_and_value(const AttentionOptions& a) {
  return Exact(a.computed_kv_heads()) * a.d_head * (a.key_projections() + 1);
}

// Parts that choose experts, heads or gates describe how, whichever comes first.
void describe_choice(Fields& fields, AttentionOptions& options);

// n_kv_heads divides n_heads.
void check_groups(const Checker& check, const AttentionOptions& options);

class HeadProjections : public ProjectionPart {
 public:
  std::int64_t kv_heads(const AttentionOptions& a) const override { return a.kv_heads(); }
  std::int64_t position_heads(const AttentionOptions& a) const override { return a.n_heads; }
  std::int64_t value_width(const AttentionOptions& a) const override { return a.d_head; }
  std::int64_t rotary_channels(const AttentionOptions& a) const override { return share_that_rotates(a); }
  std::int64_t all_heads(const AttentionOptions& a) const override { return a.n_heads; }
  bool is_bank(const AttentionOptions&, char) const override { return false; }
  bool has_latent() const override { return false; }
  bool has_fixed_heads() const override { return true; }

  Sizes matrices(const AttentionOptions& options, Exact d_model) const override;
  Sizes other_tensors(const AttentionOptions& options, Exact d_model) const override;  // biases
  ProjectionProducts products(const AttentionOptions& options, Exact d_model, const Span& span) const override;

  // MACs 2(H + G)Tde, numbers 2(H + G)Te; relative positions 2CTdHe and 2CTHe (SwitchHead Eq. 11, 12).
  PaperTerms paper(const AttentionOptions& options, const PaperSizes& sizes) const override;
  PaperTerms paper_positions(const AttentionOptions& options, const PaperSizes& sizes) const override;

  Exact cache_numbers(const AttentionOptions& a) const override { return keys_and_value(a); }

  std::vector<BalanceLoss> balance_losses(const AttentionOptions&) const override { return {}; }

  std::int64_t d_head_step() const override { return 4; }  // the papers' kernels take experts' heads in fours
  std::int64_t least_d_head(const AttentionOptions&) const override { return d_head_step(); }
  void set_heads(AttentionOptions& options, std::int64_t n_heads) const override { options.n_heads = n_heads; }
  std::vector<AttentionOptions> trials(const AttentionOptions&, std::int64_t) const override { return {}; }
};

}  // namespace headroom::config::detail
