// Shared by the files of attention's CPU backend: operands as the kernels take them.
#pragma once

#include "attention_operator.h"
#include "engine/kernels/cpu/attention/attention.h"
#include "engine/kernels/cpu/attention/mixture/mixture_attention.h"
#include "engine/ops/heads_on_cpu.h"

namespace headroom::ops {

// Owns the tensors behind the kernels' pointers.
struct AttentionOperands {
  at::Tensor q, k, v, q_position, r, bias, sink;
  kernels::AttentionShape shape;
  kernels::AttentionTensors tensors;
  explicit AttentionOperands(const FusedAttention::Arguments& in);
  at::TensorOptions floats() const { return q.options().dtype(at::kFloat); }
};

// Uninitialised results of the forward pass.
struct AttentionOutputs {
  at::Tensor o, log_sum;
  explicit AttentionOutputs(const AttentionOperands& in);
  kernels::AttentionResult result() const { return {view_out(o), log_sum.mutable_data_ptr<float>()}; }
};

// The additional operands of a mixture.
struct MixtureOperands {
  at::Tensor query_term, key_term;
  std::vector<at::Tensor> more_keys;
  kernels::MixtureTensors tensors;
  MixtureOperands(const FusedAttention::Arguments& in, const AttentionOperands& operands);
};

using AttentionArguments = FusedAttention::Arguments;
using AttentionBackward = FusedAttention::Backward;

void composed_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionOutputs& to);
AttentionArguments composed_attention_backward(const AttentionBackward& back, const AttentionOperands& operands);

void composed_decode(const AttentionArguments& in, const AttentionOperands& operands, const AttentionOutputs& to);

// Why the kernels do not take these composed heads; empty if they do.
std::string composition_refusal(const AttentionInputs& in);

}  // namespace headroom::ops
