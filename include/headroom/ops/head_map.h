// A map over heads at one (query, key) pair: a fixed map, and maps computed from the two tokens (DCMHA,
// Eq. 3-8).
//
// Letters: B batch, H heads in C groups of m = H / C neighbours, T queries, S keys, R rank.
//   a'_n = a_n [skip] + sum_m a_m fixed_mn + sum_r (sum_m a_m u_mr) w_nr [query side, key side] + a_n gate_n [both
//   sides]
// where sums over m stay inside n's group.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

namespace headroom::ops {

// What n tokens, T on the query's side or S on the key's, contribute, side by side as one projection gives it.
struct HeadMapSide {
  at::Tensor factors;     // [B, n, F]: u [R, H] and w [R, H], then the gate [H]; undefined: nothing
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
  std::optional<at::Tensor> fixed;  // [C, m, m], from head, to head
  HeadMapSide query, key;
};

// `a` [B, H, T, S] to the same shape, in its type. Throws Error on shapes that do not fit.
at::Tensor apply_head_map(const HeadMap& map, const at::Tensor& a);

}  // namespace headroom::ops
