// The quantities that analyses report, as functions of plain tensors. Each is defined in its analysis's source file.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace headroom::analyse {

// rank.cc. Returns the number of singular values >= `threshold` of each matrix [.., m, n], computed in float64; shape
// [..].
at::Tensor matrix_ranks(const at::Tensor& matrices, double threshold);

// maps.cc. The vertical stripes of attention matrices [H, T, S] (SwitchHead, Figure 6): for each head the key after the
// first whose mean weight over the queries after it (over all queries without a causal mask) exceeds chance most.
// Chance is equal weights on all visible keys. Keys that fewer than a quarter of the queries follow do not count.
// Requires S > 1. `window`: keys that a causal query sees, itself included; 0: all.
struct Stripes {
  at::Tensor key, weight, by_chance;  // [H]
};
Stripes vertical_stripes(const at::Tensor& weights, std::int64_t window = 0);

// induction.cc. The two scores of an induction head (Olsson et al. 2022; SwitchHead, section 4). The input is a
// sequence of n different tokens, repeated once.
//
// Returns the weight from each token of the second half to the token after its first occurrence, [H, n]. `weights` is
// [H, 2 n, 2 n].
at::Tensor prefix_matching(const at::Tensor& weights, std::int64_t n);
// Returns the mean of prefix_matching() if each query attends equally to itself and all tokens before it.
double prefix_matching_by_chance(std::int64_t n);
// Returns the share of a head's positive effect on the logits that falls on the tokens it attends to, by query, [H, n].
// `logits` [H, n, n] are the head's contributions to the logits of the n tokens at each query of the second half; they
// are centred and negative values are clamped to 0. `attended` [H, n, n] is each query's weight on each token. A score
// of 1 means that the head raises only tokens it attends to; 1 / n means that its effect is independent of its
// attention.
at::Tensor copying(const at::Tensor& logits, const at::Tensor& attended);

// diversity.cc. Measures how much the circuits of a layer's heads differ (DCMHA, Figure 5; Cordonnier et al. 2020).
//
// The matrices of one head are l r^T for every l of `left` and r of `right`, [d, e] each.
struct Circuit {
  std::vector<at::Tensor> left, right;
};
// Returns the cumulative share of variance explained by the principal components of all matrices, concatenated to [d, n
// d]: [d].
at::Tensor captured_variance(const std::vector<Circuit>& heads);
// Returns 0 if all matrices are multiples of one matrix, and 1 if they are mutually orthogonal. Each of the n matrices
// is flattened and normalised to length 1; the result is the variance that the first principal component does not
// explain, divided by its maximum 1 - 1/n. NaN for a single matrix.
double diversity(const std::vector<Circuit>& heads);

// composition.cc. The five terms of a composed score or weight (DCMHA, Eq. 7). `base` is the identity plus the static
// map.
inline constexpr std::array<std::string_view, 5> kTerms = {"base", "query_low_rank", "query_gate", "key_low_rank",
                                                           "key_gate"};
// The maps that a stage applies to scores or weights [H, T, S].
struct StageMaps {
  at::Tensor base;        // [H, H], from head, to head
  at::Tensor query, key;  // [T, 2, H, H], [S, 2, H, H]: low-rank map, gates
};
// Returns the five terms, [5, H, T, S]. Their sum is the composed value.
at::Tensor composed_terms(const StageMaps& maps, const at::Tensor& a);

}  // namespace headroom::analyse
