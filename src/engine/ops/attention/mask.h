#pragma once

#include "headroom/ops/attention.h"

namespace headroom::ops {

// Bool, true where key j is visible to query i: [T, S], or [B, 1, T, S] with valid_keys; undefined when all are.
at::Tensor visible_keys(const AttentionMask& mask, const c10::SymInt& n_queries, const c10::SymInt& n_keys,
                        at::Device device);

}  // namespace headroom::ops
