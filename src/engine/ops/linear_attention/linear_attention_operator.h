// The sums of linear attention, the part that its backends implement.
#pragma once

#include "engine/ops/backend.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops {

// Sums over keys of a_ij v_j and of a_ij, without the factor.
struct LinearSums {
  at::Tensor values;   // [B, H, T, w]
  at::Tensor weights;  // [B, H, T]
};

// Padded keys are 0. The reference requires float32 or float64; sums are at least float32.
struct LinearSumsInputs {
  at::Tensor q, k, v;
  bool causal;
  LinearState* carried;  // null: no state
};

Backends<LinearSumsInputs, LinearSums>& linear_attention_backends();

}  // namespace headroom::ops
