// The operators as torch's dispatcher knows them (`torch.ops.headroom.*`), callable from C++.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

#include "headroom/ops/attention.h"

namespace headroom::ops {

// The operator of that name, to be called as a Function.
template <class Function>
auto registered(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

at::Tensor call_expert_linear(const at::Tensor& input, const at::Tensor& bank, const at::Tensor& index,
                              const std::optional<at::Tensor>& weight, bool sum_heads);

at::Tensor call_attention(const AttentionInputs& inputs);

// With pre or post.
at::Tensor call_composed_attention(const AttentionInputs& inputs);
// Why the fused version does not apply; empty when it does.
std::string composed_attention_refusal(const AttentionInputs& inputs);

// With a mixture.
at::Tensor call_mixture_attention(const AttentionInputs& inputs);
std::string mixture_attention_refusal(const AttentionInputs& inputs);

}  // namespace headroom::ops
