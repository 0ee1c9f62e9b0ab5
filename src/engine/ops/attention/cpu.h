// Attention's operands as the CPU's kernels want them, and its kinds of kernels.
#pragma once

#include "engine/kernels/cpu/attention/attention.h"
#include "engine/kernels/cpu/attention/mixture_attention.h"
#include "engine/ops/heads_on_cpu.h"
#include "operator.h"

namespace headroom::ops {

// Holds what the kernels' pointers point into.
struct AttentionOperands {
  at::Tensor q, k, v, q_position, r, bias, sink;
  kernels::AttentionShape shape;
  kernels::AttentionTensors tensors;
  explicit AttentionOperands(const FusedAttention::Arguments& in);
  at::TensorOptions floats() const { return q.options().dtype(at::kFloat); }
};

// Room for the forward pass's results.
struct AttentionRoom {
  at::Tensor o, log_sum;
  explicit AttentionRoom(const AttentionOperands& in);
  kernels::AttentionResult result() const { return {view_out(o), log_sum.mutable_data_ptr<float>()}; }
};

// What a mixture also has.
struct MixtureOperands {
  at::Tensor query_term, key_term;
  std::vector<at::Tensor> more_keys;
  kernels::MixtureTensors tensors;
  MixtureOperands(const FusedAttention::Arguments& in, const AttentionOperands& operands);
};

using AttentionArguments = FusedAttention::Arguments;
using AttentionBackward = FusedAttention::Backward;

void composed_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to);
AttentionArguments composed_attention_backward(const AttentionBackward& back, const AttentionOperands& operands);

void mixture_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to);
AttentionArguments mixture_attention_backward(const AttentionBackward& back, const AttentionOperands& operands);

// Heads of few queries that a thread takes at least: over few keys they are done sooner than a thread is called.
std::int64_t few_queries_grain(const kernels::AttentionShape& shape);

// Forward, of fewer than kFewQueries queries.
void composed_few_queries(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to);
void mixture_few_queries(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to);

// Why composed heads are not for the kernels; empty when they are.
std::string composition_refusal(const AttentionInputs& in);
std::string mixture_refusal(const AttentionInputs& in);

}  // namespace headroom::ops
