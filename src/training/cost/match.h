// Giving two models the same size or the same work, so that a comparison between them is fair.
#pragma once

#include <cstdint>
#include <vector>

#include "headroom/config/config.h"

namespace headroom::cost {

enum class MatchBy { parameters, macs };

// One choice of heads and experts with the widths that match it to the target.
struct Candidate {
  std::int64_t n_heads = 0, n_experts = 0, top_k = 0;
  std::int64_t d_head = 0, d_hidden = 0;
  std::int64_t parameters = 0, attention_macs = 0;  // MACs in paper accounting, per layer and sequence
};

struct MatchResult {
  config::Config config;  // the given one with the widths (and, by MACs, the heads) that match
  MatchBy by = MatchBy::parameters;
  std::int64_t parameters = 0, target_parameters = 0;
  std::int64_t attention_macs = 0, target_attention_macs = 0;
  std::vector<Candidate> candidates;  // see match()
};

// The SwitchHead papers' procedure (SwitchHead draft, section 3; SwitchHead, sections 3 and 3.5).
//
// By parameters: n_heads, n_experts, top_k of `config` stay. d_hidden starts at the target's where both have the
// same kind of MLP; d_head becomes the largest (a multiple of 4 for experts and routed heads) that keeps the count
// at or below the target's; then d_hidden grows (by 1; expert MLPs by 4) as long as the count does not exceed it.
// The papers stop within 100k parameters of the target; continuing to the last unit that fits is within that for all
// their models and as close as can be for small ones.
//
// Composed heads (DCMHA) keep their width, since the composition comes on top of heads as they are, and so do heads
// with mixtures of keys (Transformer-MGK), whose paper takes fewer of the same width: there d_hidden
// alone, wider or narrower than the target's, takes the difference.
//
// Which heads and experts to begin with only training can decide: the papers set n_heads x n_experts to the
// target's n_heads and take the first of (n_heads, top_k) = (2,2), (2,3), (2,4), (4,2) that reaches the target's
// perplexity. `candidates` holds those that exist for the target, each matched, when `config` has experts.
//
// By MACs (attention, paper accounting): d_head and n_heads grow by the same factor until the target's MACs are
// met: n_heads to the nearest whole head (never fewer than given), then d_head to the largest (multiple of 4)
// that does not exceed them. The number of parameters grows along.
//
// Throws UserError when even the smallest d_head exceeds the target, and for options without a cost formula.
MatchResult match(const config::Config& config, const config::Config& target, MatchBy by);

}  // namespace headroom::cost
