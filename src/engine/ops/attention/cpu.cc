#include "cpu.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "engine/kernels/cpu/products/bfloat16.h"

namespace headroom::ops {

kernels::AttentionShape shape_of_call(const AttentionArguments& in) {
  const at::Tensor &q = in.q, &k = in.k;
  return {.batch = q.size(0),
          .heads = q.size(1),
          .kv_heads = k.size(1),
          .queries = q.size(2),
          .keys = k.size(2),
          .d_head = q.size(3),
          .d_value = in.v.size(3),
          .causal = in.causal,
          .window = in.window,
          .scale = static_cast<float>(in.scale),
          .half = q.scalar_type() == at::kBFloat16 && kernels::multiplies_bfloat16()};
}

AttentionOperands::AttentionOperands(const AttentionArguments& in)
    : q(prepared(in.q)), k(prepared(in.k)), v(prepared(in.v)), shape(shape_of_call(in)) {
  tensors.q = view(q);
  tensors.k = view(k);
  tensors.v = view(v);
  if (in.r) {
    q_position = prepared(*in.q_position);
    r = prepared(*in.r);
    tensors.q_position = view(q_position);
    tensors.r = view(r);
  }
  if (in.sink) {
    sink = in.sink->to(at::kFloat).contiguous();
    tensors.sink = sink.const_data_ptr<float>();
  }
  if (in.valid_keys) {
    bias = key_bias(*in.valid_keys);
    tensors.key_bias = bias.const_data_ptr<float>();
  }
}

AttentionRoom::AttentionRoom(const AttentionOperands& in)
    : o(results_by_token(in.q, in.v)), log_sum(at::empty(in.q.sizes().slice(0, 3), in.floats())) {}

std::int64_t few_queries_grain(const kernels::AttentionShape& s) {
  constexpr std::int64_t kNumbers = 1 << 17;  // multiplied for scores and values
  return std::max<std::int64_t>(1, kNumbers / std::max<std::int64_t>(1, 2 * s.queries * s.keys * s.d_head));
}

namespace {

void plain_attention(const AttentionOperands& in, const AttentionRoom& to) {
  const kernels::AttentionResult out = to.result();
  at::parallel_for(0, in.shape.batch * in.shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    kernels::attention_forward(in.shape, in.tensors, out, begin, end);
  });
}

void plain_few_queries(const AttentionOperands& in, const AttentionRoom& to) {
  const kernels::AttentionResult out = to.result();
  const std::int64_t n = in.shape.batch * in.shape.heads;
  at::parallel_for(0, n, few_queries_grain(in.shape), [&](std::int64_t begin, std::int64_t end) {
    kernels::attention_few_queries(in.shape, in.tensors, out, begin, end);
  });
}

FusedAttention::Results attention_cpu(const AttentionArguments& in) {
  const AttentionOperands operands(in);
  const AttentionRoom to(operands);
  const bool few = in.q.size(2) < kernels::kFewQueries;
  if (in.heads_together()) {
    (few ? composed_few_queries : composed_attention)(in, operands, to);
  } else if (in.factor) {
    (few ? mixture_few_queries : mixture_attention)(in, operands, to);
  } else {
    (few ? plain_few_queries : plain_attention)(operands, to);
  }
  return {to.o, to.log_sum};
}

AttentionArguments plain_attention_backward(const AttentionBackward& back, const AttentionOperands& in) {
  const at::Tensor d_o = prepared(back.grad), o = prepared(*back.o), sums = back.log_sum.contiguous();
  const kernels::AttentionShape& s = in.shape;
  const at::Tensor d_q = empty_by_token(in.q), d_k = room_per_head(in.k, s.heads), d_v = room_per_head(in.v, s.heads);
  at::Tensor d_position, d_r, d_sink;
  kernels::AttentionGradients out{.d_o = view(d_o),
                                  .o = view(o),
                                  .log_sum = sums.const_data_ptr<float>(),
                                  .d_q = view_out(d_q),
                                  .d_k = view_out(d_k),
                                  .d_v = view_out(d_v)};
  if (in.r.defined()) {
    d_position = empty_by_token(in.q_position);
    d_r = at::empty({s.batch, s.heads, s.offsets(), s.d_head}, in.floats());
    out.d_q_position = view_out(d_position);
    out.d_r = view_out(d_r);
  }
  if (in.sink.defined()) {
    d_sink = at::empty({s.batch, s.heads}, in.floats());
    out.d_sink = d_sink.mutable_data_ptr<float>();
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
  if (in.sink.defined()) {
    d.sink = d_sink.sum(0).to(back.in.sink->scalar_type());
  }
  return d;
}

AttentionArguments attention_backward_cpu(const AttentionBackward& back) {
  const AttentionOperands operands(back.in);
  return back.in.heads_together() ? composed_attention_backward(back, operands)
         : back.in.factor         ? mixture_attention_backward(back, operands)
                                  : plain_attention_backward(back, operands);
}

std::string attention_refusal(const AttentionInputs& in) {
  if (in.bias) {
    return "a bias on the scores has the reference only: it is a number for every pair, which blocks never hold";
  }
  std::string refusal = in.mixture ? mixture_refusal(in) : "";
  if (refusal.empty() && (in.pre || in.post)) {
    refusal = composition_refusal(in);
  }
  return refusal;
}

at::Tensor attention_run(const AttentionInputs& in) {
  return call<FusedAttention>(fused_arguments(in)).o;
}

[[maybe_unused]] const bool kAttentionOnCpu =
    attention_backends().add({{"kernels", at::kCPU, 0, float32_or_bfloat16}, attention_refusal, attention_run});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedAttention, attention_cpu, attention_backward_cpu>(library);
}

}  // namespace headroom::ops
