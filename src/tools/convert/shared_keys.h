// Keys and values that several heads share, in closed form: for multi-head latent attention and routed heads.
//
// C is the covariance of the source tokens x, E[x^T x] [d, d], and all tensors are float64. "Whitened" tokens have the
// identity as covariance.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace headroom::convert {

// C^(1/2) and its inverse.
struct Roots {
  explicit Roots(const at::Tensor& covariance);
  at::Tensor root, inverse;
};

// A factorisation of a matrix [d, n] through r whitened channels of x: matrix is about down up.
struct LowRank {
  at::Tensor down;  // [d, r]
  at::Tensor up;    // [r, n]
};
// The same factorisation with orthonormal columns of `down`, for a layer that divides x down by its root mean square:
// tokens of similar length then stay of similar length. `size` is the root mean square of x down over the tokens.
struct Normalised {
  LowRank factors;
  double size = 0.0;
};
Normalised with_orthonormal_columns(const LowRank& factors, const Roots& roots);

// Returns the factors of least squared error over the tokens, where the error of column i has weight weights[i].
LowRank low_rank(const at::Tensor& matrix, const at::Tensor& weights, std::int64_t rank, const Roots& roots);

// Queries [d, H, c] and the keys [d, c] that all heads share.
struct SharedKeys {
  at::Tensor queries, keys;
};
// Shares rotary channels, which form pairs (i, i + c/2). With queries and keys as complex numbers, each pair's keys k_h
// are approximated by a_h k with one shared k: the leading singular vector over the heads, weighted by their queries'
// size. q_h becomes q_h conj(a_h). Rotations by position commute with this.
SharedKeys share_rotated(const at::Tensor& queries, const at::Tensor& keys, const Roots& roots);
// Shares channels without rotation: the leading `rank` directions of all heads' keys.
SharedKeys share_plain(const at::Tensor& queries, const at::Tensor& keys, std::int64_t rank, const Roots& roots);

}  // namespace headroom::convert
