// A linear map across heads at each (query, key) pair: a fixed map, plus maps computed from the two tokens (DCMHA,
// Eq. 3-8).
//
// Letters: B batch, H heads in C groups of m = H / C neighbours, T queries, S keys, R rank.
//   a'_n = a_n [skip] + sum_m a_m fixed_mn + sum_r (sum_m a_m u_mr) w_nr [query side, key side] + a_n gate_n [both
//   sides]
// where sums over m are over n's group.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "headroom/core/implementation.h"

namespace headroom::ops {

// The factors of n tokens on one side (T queries or S keys), concatenated into one projection's output.
struct HeadMapSide {
  at::Tensor factors;     // [B, n, F]: u [R, H], w [R, H], then the gate [H]; undefined: none
  std::int64_t rank = 0;  // R; 0: neither u nor w
  bool has_gate = false;

  c10::SymInt n_heads() const { return factors.sym_size(2) / (2 * rank + (has_gate ? 1 : 0)); }
  at::Tensor u() const;     // [B, n, R, H]
  at::Tensor w() const;     // [B, n, R, H]
  at::Tensor gate() const;  // [B, n, H]
};

struct HeadMap {
  std::int64_t n_groups = 1;
  bool skip = true;
  std::optional<at::Tensor> fixed;  // [C, m, m], indexed by source head, then target head
  HeadMapSide query, key;
};

// Maps `a` [B, H, T, S]; the result has its shape and dtype. Throws Error if shapes do not match.
at::Tensor apply_head_map(const HeadMap& map, const at::Tensor& a);

// Epsilon of the RMS normalisation of u.
inline constexpr double kFactorEpsilon = 1e-6;

// The weights that compute one side's factors from its tokens (DCMHA, Eq. 6-8), for one or more stages of the same
// structure.
//
// Letters: N tokens, d d_model, H heads in C groups of m, R rank, I hidden width (2 R m in DCMHA).
struct HeadMapWeights {
  std::vector<at::Tensor> w1;    // [C, d, I] for each stage; empty: no low-rank map
  std::vector<at::Tensor> w2;    // [C, I, 2, R, m] for each stage
  std::vector<at::Tensor> gate;  // [d, H] for each stage; empty: no gate
  bool tanh_gelu = false;        // use GELU's tanh approximation between w1 and w2
};

// Maps x [N, d] to HeadMapSide::factors of its tokens, [N, F] for each stage, concatenated. With f = gelu(x w1) w2 in
// each group, u_r = f_0r / sqrt(mean over m of f_0r^2 + 1e-6) and w_r = f_1r; the gate is tanh(x gate). Differentiable
// in x and all weights. The weights must have the same dtype, which is also the result's; x is converted to it.
//
// `implementation` is passed on to linear() (linear.h). On the decode path (at most 16 rows, no gradient; CPU, float32
// or bfloat16) a separate implementation reads the weights in place, unless the reference is requested. Throws Error on
// shapes that do not match.
at::Tensor head_map_factors(const at::Tensor& x, const HeadMapWeights& weights,
                            Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
