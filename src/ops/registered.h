// The operators as torch's dispatcher knows them (`torch.ops.headroom.*`), callable from C++.
#pragma once

#include <ATen/ATen.h>

#include <optional>

#include "headroom/ops/attention.h"

namespace headroom::ops {

at::Tensor call_expert_linear(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                              const std::optional<at::Tensor>& weight, bool sum_heads);

at::Tensor call_attention(const AttentionInputs& inputs);

}  // namespace headroom::ops
