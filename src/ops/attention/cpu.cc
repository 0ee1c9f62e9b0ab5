#include "ops/attention/cpu.h"

#include <ATen/Parallel.h>

#include "ops/backend.h"
#include "ops/float_on_cpu.h"

namespace headroom::ops {

kernels::AttentionShape shape_of_call(const AttentionArguments& in) {
  const at::Tensor &q = in.q, &k = in.k;
  return {.batch = q.size(0),
          .heads = q.size(1),
          .kv_heads = k.size(1),
          .queries = q.size(2),
          .keys = k.size(2),
          .d_head = q.size(3),
          .causal = in.causal,
          .window = in.window,
          .scale = static_cast<float>(in.scale),
          .half = q.scalar_type() == at::kBFloat16 && multiplies_bfloat16()};
}

AttentionOperands::AttentionOperands(const AttentionArguments& in)
    : q(prepared(in.q)), k(prepared(in.k)), v(prepared(in.v)), shape(shape_of_call(in)) {
  tensors.q = view<const float>(q);
  tensors.k = view<const float>(k);
  tensors.v = view<const float>(v);
  if (in.r) {
    q_position = prepared(*in.q_position);
    r = prepared(*in.r);
    tensors.q_position = view<const float>(q_position);
    tensors.r = view<const float>(r);
  }
  if (in.valid_keys) {
    bias = key_bias(*in.valid_keys);
    tensors.key_bias = bias.const_data_ptr<float>();
  }
}

AttentionRoom::AttentionRoom(const at::Tensor& q)
    : o(empty_by_token(q)), log_sum(at::empty(q.sizes().slice(0, 3), q.options())) {}

namespace {

void plain_attention(const AttentionOperands& in, const AttentionRoom& to) {
  const kernels::AttentionResult out = to.result();
  at::parallel_for(0, in.shape.batch * in.shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::attention_forward(in.shape, in.tensors, out, begin, end);
  });
}

// Keys, values and offsets are read where they lie.
template <class T>
FusedAttention::Results few_queries(const AttentionArguments& in) {
  const at::Tensor q = prepared(in.q), k = by_rows_of_heads(in.k), v = by_rows_of_heads(in.v);
  const kernels::AttentionShape shape = shape_of_call(in);
  kernels::AttentionTensorsOf<T> tensors{
      .q = view<const float>(q), .k = view<const T>(k), .v = view<const T>(v), .q_position = {}, .r = {}};
  at::Tensor q_position, r, bias;
  if (in.r) {
    q_position = prepared(*in.q_position);
    r = by_rows_of_heads(*in.r);
    tensors.q_position = view<const float>(q_position);
    tensors.r = view<const T>(r);
  }
  if (in.valid_keys) {
    bias = key_bias(*in.valid_keys);
    tensors.key_bias = bias.const_data_ptr<float>();
  }
  const AttentionRoom to(q);
  const kernels::AttentionResult out = to.result();
  at::parallel_for(0, shape.batch * shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::attention_few_queries(shape, tensors, out, begin, end);
  });
  return {to.o.to(in.q.scalar_type()), to.log_sum};
}

bool one_type(const AttentionArguments& in) {
  const at::ScalarType type = in.k.scalar_type();
  return in.v.scalar_type() == type && (!in.r || in.r->scalar_type() == type);
}

FusedAttention::Results attention_cpu(const AttentionArguments& in) {
  const bool plain = !in.heads_together() && !in.factor;
  if (plain && in.q.size(2) < kernels::kFewQueries && one_type(in)) {
    return in.k.scalar_type() == at::kFloat ? few_queries<float>(in) : few_queries<kernels::BFloat16>(in);
  }
  const AttentionOperands operands(in);
  const AttentionRoom to(operands.q);
  if (in.heads_together()) {
    composed_attention(in, operands, to);
  } else if (in.factor) {
    mixture_attention(in, operands, to);
  } else {
    plain_attention(operands, to);
  }
  return {to.o.to(in.q.scalar_type()), to.log_sum};
}

AttentionArguments plain_attention_backward(const AttentionBackward& back, const AttentionOperands& in) {
  const at::Tensor d_o = prepared(back.grad), o = prepared(*back.o), sums = back.log_sum.contiguous();
  const kernels::AttentionShape& s = in.shape;
  const at::Tensor d_q = empty_by_token(in.q);
  const at::Tensor d_k = at::empty({s.batch, s.heads, s.keys, s.d_head}, in.floats()), d_v = at::empty_like(d_k);
  at::Tensor d_position, d_r;
  kernels::AttentionGradients out{.d_o = view<const float>(d_o),
                                  .o = view<const float>(o),
                                  .log_sum = sums.const_data_ptr<float>(),
                                  .d_q = view<float>(d_q),
                                  .d_k = view<float>(d_k),
                                  .d_v = view<float>(d_v)};
  if (in.r.defined()) {
    d_position = empty_by_token(in.q);
    d_r = at::empty({s.batch, s.heads, s.offsets(), s.d_head}, in.floats());
    out.d_q_position = view<float>(d_position);
    out.d_r = view<float>(d_r);
  }
  at::parallel_for(0, s.batch * s.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::attention_backward(s, in.tensors, out, begin, end);
  });
  AttentionArguments d;
  d.q = d_q;
  d.k = per_group(d_k, back.in.k);
  d.v = per_group(d_v, back.in.v);
  if (in.r.defined()) {
    d.q_position = d_position.to(back.in.q_position->scalar_type());
    d.r = d_r.sum(0).to(back.in.r->scalar_type());
  }
  return d;
}

AttentionArguments attention_backward_cpu(const AttentionBackward& back) {
  const AttentionOperands operands(back.in);
  AttentionArguments d = back.in.heads_together() ? composed_attention_backward(back, operands)
                         : back.in.factor         ? mixture_attention_backward(back, operands)
                                                  : plain_attention_backward(back, operands);
  d.q = d.q.to(back.in.q.scalar_type());
  return d;
}

std::string attention_refusal(const AttentionInputs& in) {
  std::string refusal = in.mixture ? mixture_refusal(in) : "";
  if (refusal.empty() && (in.pre || in.post)) {
    refusal = composition_refusal(in);
  }
  return refusal.empty() ? float_refusal(in.q) : refusal;
}

std::string attention_advice(const AttentionInputs& in) {
  return in.mixture && in.q.sym_size(2) < kernels::kFewQueries
             ? "for a few queries packing the keys costs more than it saves"
             : "";
}

at::Tensor attention_run(const AttentionInputs& in) {
  return call<FusedAttention>(fused_arguments(in)).o;
}

[[maybe_unused]] const bool kAttentionOnCpu =
    add_backend<AttentionInputs, at::Tensor>(at::kCPU, {attention_refusal, attention_run, attention_advice});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedAttention, attention_cpu, attention_backward_cpu>(library);
}

}  // namespace headroom::ops
