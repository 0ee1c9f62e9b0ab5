#include <ATen/Parallel.h>
#include <fmt/format.h>

#include "cpu.h"
#include "engine/kernels/cpu/attention/mixture_rows.h"
#include "engine/ops/shapes.h"

namespace headroom::ops {

MixtureOperands::MixtureOperands(const AttentionArguments& in, const AttentionOperands& operands)
    : query_term(in.query_term->to(at::kFloat).contiguous()), key_term(in.key_term->to(at::kFloat).contiguous()) {
  tensors.q = operands.tensors.q;
  tensors.v = operands.tensors.v;
  tensors.keys.push_back(operands.tensors.k);
  for (const at::Tensor& key : in.more_keys) {
    more_keys.push_back(prepared(key));
    tensors.keys.push_back(view(more_keys.back()));
  }
  const at::Tensor factor = in.factor->to(at::kFloat).contiguous();
  tensors.factor.assign(factor.const_data_ptr<float>(), factor.const_data_ptr<float>() + factor.numel());
  tensors.query_term = query_term.const_data_ptr<float>();
  tensors.key_term = key_term.const_data_ptr<float>();
  tensors.epsilon = static_cast<float>(in.epsilon);
  tensors.maximum = in.maximum;
  tensors.key_bias = operands.tensors.key_bias;
}

void mixture_few_queries(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to) {
  const MixtureOperands mixture(in, operands);
  const kernels::AttentionResult out = to.result();
  const std::int64_t n = operands.shape.batch * operands.shape.heads;
  at::parallel_for(0, n, few_queries_grain(operands.shape), [&](std::int64_t begin, std::int64_t end) {
    kernels::mixture_attention_few_queries(operands.shape, mixture.tensors, out, begin, end);
  });
}

void mixture_attention(const AttentionArguments& in, const AttentionOperands& operands, const AttentionRoom& to) {
  const MixtureOperands mixture(in, operands);
  const kernels::AttentionResult out = to.result();
  at::parallel_for(0, operands.shape.batch * operands.shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::mixture_attention_forward(operands.shape, mixture.tensors, out, begin, end);
  });
}

AttentionArguments mixture_attention_backward(const AttentionBackward& back, const AttentionOperands& operands) {
  const AttentionArguments& in = back.in;
  const kernels::AttentionShape& s = operands.shape;
  const MixtureOperands mixture(in, operands);
  const at::Tensor d_o = prepared(back.grad), o = prepared(*back.o), sums = back.log_sum.contiguous();
  const at::TensorOptions floats = operands.floats();
  const at::Tensor d_q = empty_by_token(operands.q), d_v = room_per_head(operands.v, s.heads);
  const at::Tensor d_query_term = at::empty(mixture.query_term.sizes(), floats);
  const at::Tensor d_key_term = at::zeros({s.batch, s.heads, mixture.key_term.size(2), s.keys}, floats);
  kernels::MixtureGradients out{.d_o = view(d_o),
                                .o = view(o),
                                .log_sum = sums.const_data_ptr<float>(),
                                .d_q = view_out(d_q),
                                .d_v = view_out(d_v),
                                .d_keys = {},
                                .d_query_term = d_query_term.mutable_data_ptr<float>(),
                                .d_key_term = d_key_term.mutable_data_ptr<float>()};
  std::vector<at::Tensor> d_keys;
  for (std::size_t i = 0; i < mixture.tensors.keys.size(); ++i) {
    d_keys.push_back(room_per_head(i == 0 ? in.k : in.more_keys[i - 1], s.heads));
    out.d_keys.push_back(view_out(d_keys.back()));
  }
  at::parallel_for(0, s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::mixture_attention_backward(s, mixture.tensors, out, begin, end);
  });
  AttentionArguments d;
  d.q = d_q;
  d.k = per_group(d_keys[0], in.k);
  d.v = per_group(d_v, in.v);
  for (std::size_t i = 0; i < in.more_keys.size(); ++i) {
    d.more_keys.push_back(per_group(d_keys[i + 1], in.more_keys[i]));
  }
  d.query_term = d_query_term.to(in.query_term->scalar_type());
  d.key_term = per_group(d_key_term, *in.key_term);
  return d;
}

std::string mixture_refusal(const AttentionInputs& in) {
  const Mixture& mixture = *in.mixture;
  if (in.sink) {
    return "a sink is fused with dot products, not with mixtures of keys";
  }
  if (mixture.n_components() > kernels::kMostComponents) {
    return fmt::format("mixtures of keys are fused up to {} components", kernels::kMostComponents);
  }
  if (mixture.coefficient && mixture.coefficient->requires_grad()) {
    return "mixtures of keys with a learned scale have the reference only";
  }
  if (mixture.prior && has_numbers(*mixture.prior) && mixture.prior->le(0.0).any().item<bool>()) {
    return "mixtures of keys with a component without weight have the reference only";
  }
  return {};
}

}  // namespace headroom::ops
