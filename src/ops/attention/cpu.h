// Attention's operands as the CPU's kernels want them, and its kinds of kernels.
#pragma once

#include "headroom/kernels/cpu/attention.h"
#include "headroom/kernels/cpu/mixture_attention.h"
#include "ops/attention/operator.h"
#include "ops/heads_on_cpu.h"

namespace headroom::ops {

// Holds what the kernels' pointers point into: keys, values and offsets as T, the rest as float32.
template <class T>
struct AttentionOperandsOf {
  at::Tensor q, k, v, q_position, r, bias;
  kernels::AttentionShape shape;
  kernels::AttentionTensorsOf<T> tensors;
  explicit AttentionOperandsOf(const FusedAttention::Arguments& in);
  at::TensorOptions floats() const { return q.options(); }
};
using AttentionOperands = AttentionOperandsOf<float>;

// Room for the forward pass's results in float32.
struct AttentionRoom {
  at::Tensor o, log_sum;
  explicit AttentionRoom(const at::Tensor& q);
  kernels::AttentionResult result() const { return {view<float>(o), log_sum.mutable_data_ptr<float>()}; }
};

// The same of a mixture.
template <class T>
struct MixtureOperandsOf {
  at::Tensor query_term, key_term;
  std::vector<at::Tensor> more_keys;
  kernels::MixtureTensorsOf<T> tensors;
  MixtureOperandsOf(const FusedAttention::Arguments& in, const AttentionOperandsOf<T>& operands);
};
using MixtureOperands = MixtureOperandsOf<float>;

using AttentionArguments = FusedAttention::Arguments;
using AttentionBackward = FusedAttention::Backward;

void composed_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to);
AttentionArguments composed_attention_backward(const AttentionBackward& back, const AttentionOperands& operands);

void mixture_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to);
AttentionArguments mixture_attention_backward(const AttentionBackward& back, const AttentionOperands& operands);

// Forward, of fewer than kFewQueries queries.
template <class T>
void composed_few_queries(const AttentionArguments& in, const AttentionOperandsOf<T>& operands,
                          const AttentionRoom& to);
template <class T>
void mixture_few_queries(const AttentionArguments& in, const AttentionOperandsOf<T>& operands, const AttentionRoom& to);

// Why composed heads are not for the kernels; empty when they are.
std::string composition_refusal(const AttentionInputs& in);
std::string mixture_refusal(const AttentionInputs& in);

}  // namespace headroom::ops
