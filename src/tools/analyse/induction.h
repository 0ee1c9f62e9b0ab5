// What makes an induction head (Olsson et al. 2022; section 4 of the SwitchHead paper finds them in both models): on a
// text that repeats itself it looks at what came after the current token the last time, and makes that likelier.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace headroom::inspect {

// Of weights [H, 2 n, 2 n] over n different tokens and then the same again: the mean weight [H] that a query of the
// second half gives to the key after the current token's first occurrence. 1: all of it.
at::Tensor prefix_matching(const at::Tensor& weights, std::int64_t n);

// What a head's results make likelier, [H, n, n]: the scores of the sequence's n different tokens at each query of the
// second half. Centred over the tokens, and what is below 0 left out, the share of it that falls on the tokens that the
// head looks at, weighted as it looks: `looks` [H, n, n], the weight of each token at each query. The mean over queries
// [H]; 1: it raises what it sees, 1 / n: it raises anything.
at::Tensor copying(const at::Tensor& scores, const at::Tensor& looks);

}  // namespace headroom::inspect
