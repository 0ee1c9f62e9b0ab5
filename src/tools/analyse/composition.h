// The five terms of a composed score or weight (DCMHA, Eq. 7), over heads H, queries T and keys S.
#pragma once

#include <ATen/ATen.h>

#include <array>
#include <string_view>

namespace headroom::inspect {

// `base`: the identity and the fixed map; then the low-rank map and the gates of the query's side and of the key's.
inline constexpr std::array<std::string_view, 5> kTerms = {"base", "query_low_rank", "query_gate", "key_low_rank",
                                                           "key_gate"};

// What a stage makes of scores or weights a [H, T, S].
struct StageMaps {
  at::Tensor base;        // [H, H], from head, to head
  at::Tensor query, key;  // [T, 2, H, H], [S, 2, H, H]: low-rank map, gates
};

// The terms [5, H, T, S]; they add up to the composed value.
at::Tensor composed_terms(const StageMaps& maps, const at::Tensor& a);

}  // namespace headroom::inspect
