// Shared by the files of attention's CPU backend: operands in the form that the kernels take.
#pragma once

#include "attention_operator.h"
#include "engine/kernels/cpu/attention/attention.h"
#include "engine/kernels/cpu/attention/formula_rows.h"
#include "engine/kernels/cpu/attention/mixture/mixture_attention.h"
#include "engine/ops/heads_on_cpu.h"

namespace headroom::ops {

using AttentionArguments = FusedAttention::Arguments;
using AttentionBackward = FusedAttention::Backward;

// Owns the tensors behind the kernels' pointers.
struct AttentionOperands {
  at::Tensor q, k, v, q_position, r, bias, sink;
  kernels::AttentionShape shape;
  kernels::AttentionTensors tensors;
  explicit AttentionOperands(const AttentionArguments& in);
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
  MixtureOperands(const AttentionArguments& in, const AttentionOperands& operands);
};

// A call's formula and the float32 tensors that it reads.
struct FormulaOperands {
  std::vector<at::Tensor> held;
  kernels::ScoreFormula formula;
  // `blocks`: classify the mask's blocks, on several threads. `backward`: with derivatives.
  FormulaOperands(const AttentionArguments& in, const kernels::AttentionShape& shape, bool blocks, bool backward);
};

// Gradients of the tensors that a formula reads, per sequence and query head, initially 0.
struct FormulaGradientTensors {
  std::vector<at::Tensor> learned, tables, tokens;
  kernels::FormulaGradients pointers;
  FormulaGradientTensors(const ScoreFormula& in, const kernels::AttentionShape& shape);
  void set_result(const ScoreFormula& in, ScoreFormula& d) const;
};

// Returns why the kernels do not support this formula; empty if they do.
std::string formula_refusal(const AttentionInputs& in);

// The operands' gradients, uninitialised or 0 as the kernels require; undefined for operands that are not set.
// `pointers` also holds the incoming gradient. Gradients of keys, values, r, sink and key_term are per query head and
// per part of a sequence ([B * parts, ...]).
struct AttentionGradientTensors {
  at::Tensor d_o, o, log_sum, d_q, d_v, d_position, d_r, d_sink, d_query_term, d_key_term;
  std::vector<at::Tensor> d_keys;
  kernels::AttentionGradients pointers;
  std::int64_t parts;
  AttentionGradientTensors(const AttentionBackward& back, const AttentionOperands& operands, std::int64_t n_parts = 1);
  // Returns the gradients, summed over parts and shared heads, in the dtypes of the operator's arguments.
  AttentionArguments result(const AttentionArguments& in) const;
};

// Sums over parts: [B * parts, ...] to [B, ...].
inline at::Tensor sum_of_parts(const at::Tensor& t, std::int64_t parts) {
  return parts == 1 ? t : t.unflatten(0, {-1, parts}).sum(1);
}

void composed_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionOutputs& to);
AttentionArguments composed_attention_backward(const AttentionBackward& back, const AttentionOperands& operands);

void composed_decode(const AttentionArguments& in, const AttentionOperands& operands, const AttentionOutputs& to);

// Returns why the kernels do not support these composed heads; empty if they do.
std::string composition_refusal(const AttentionInputs& in);

}  // namespace headroom::ops
