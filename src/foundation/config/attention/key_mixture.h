// What scores with several keys at a position share: where those keys come from and how they are weighed
// (Transformer-MGK section 2).
#pragma once

#include "headroom/config/attention_part.h"

namespace headroom::config::detail {

// Whichever such score comes first describes them.
void describe_key_mixture(Fields& fields, AttentionOptions& options);

// A score with one key a position has no use for them.
void check_no_key_mixture(const Checker& check, const AttentionOptions& options);

// A prior needs several keys.
void check_prior(const Checker& check, const AttentionOptions& options);

inline std::int64_t components_of(const AttentionOptions& a) {
  return a.keys == Keys::single ? 1 : a.n_mixtures;
}

// Shifts R G e; a prior learned by gradient R, R G, or R G S numbers.
Sizes key_mixture_tensors(const AttentionOptions& options, Exact sources);

// Paper accounting of the keys beyond one at a position: own keys are projected, all are kept, shifted ones as well.
PaperTerms more_keys(const AttentionOptions& options, const PaperSizes& sizes);

}  // namespace headroom::config::detail
