// gated_delta on the CPU: one task for each value head of each sequence.
#include <ATen/Parallel.h>

#include "engine/kernels/cpu/attention/delta_rule.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/shapes.h"
#include "gated_delta_operator.h"

namespace headroom::ops {
namespace {

static_assert(kernels::kDeltaChunk == kDeltaChunk);

at::Tensor rows_of_floats(const at::Tensor& t) {
  const at::Tensor wide = t.to(at::kFloat);
  return wide.stride(-1) == 1 || wide.size(-1) == 1 ? wide : wide.contiguous();
}

// Matrix [T, *] of a sequence and head of [B, heads, T, *].
kernels::Strided<float> matrix_of(const at::Tensor& t, std::int64_t b, std::int64_t h) {
  return {t.mutable_data_ptr<float>() + b * t.stride(0) + h * t.stride(1), t.stride(2)};
}
kernels::Strided<const float> read_only(const kernels::Strided<float>& rows) {
  return {rows.data, rows.stride};
}
// The same of a contiguous tensor [B, heads, ..].
float* block_of(const at::Tensor& t, std::int64_t b, std::int64_t h) {
  return t.mutable_data_ptr<float>() + b * t.stride(0) + h * t.stride(1);
}

struct PreparedDelta {
  at::Tensor q, k, v, beta, log_decay;

  explicit PreparedDelta(const FusedGatedDelta::Inputs& in)
      : q(rows_of_floats(in.q)),
        k(rows_of_floats(in.k)),
        v(rows_of_floats(in.v)),
        beta(in.beta.to(at::kFloat).contiguous()),
        log_decay(in.log_decay.to(at::kFloat).contiguous()) {}

  kernels::DeltaShape shape() const { return {v.size(2), q.size(3), v.size(3)}; }
  kernels::DeltaHead head(std::int64_t b, std::int64_t h) const {
    const std::int64_t key_head = h / (v.size(1) / k.size(1));
    return {read_only(matrix_of(q, b, key_head)), read_only(matrix_of(k, b, key_head)), read_only(matrix_of(v, b, h)),
            block_of(beta, b, h), block_of(log_decay, b, h)};
  }
};

// Calls body(sequence, value head) for all of them.
template <class Body>
void for_value_heads(const at::Tensor& v, const Body& body) {
  const std::int64_t heads = v.size(1);
  at::parallel_for(0, v.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      body(task / heads, task % heads);
    }
    kernels::tile_product_done();
  });
}

FusedGatedDelta::Results gated_delta_cpu(const FusedGatedDelta::Arguments& given) {
  const PreparedDelta in(given);
  const kernels::DeltaShape s = in.shape();
  const std::int64_t b = in.v.size(0), h = in.v.size(1), chunks = (s.tokens + kDeltaChunk - 1) / kDeltaChunk;
  const at::TensorOptions options = in.v.options();
  const at::Tensor before = given.state ? given.state->to(at::kFloat).contiguous() : at::Tensor();
  FusedGatedDelta::Results out{empty_by_token(in.v), at::empty({b, h, s.d_key, s.d_value}, options),
                               at::empty({b, h, chunks, s.d_key, s.d_value}, options),
                               at::empty(in.v.sizes(), options)};
  for_value_heads(in.v, [&](std::int64_t row, std::int64_t head) {
    kernels::delta_rule(s, in.head(row, head), before.defined() ? block_of(before, row, head) : nullptr,
                        {block_of(out.states, row, head), matrix_of(out.written, row, head)},
                        matrix_of(out.o, row, head), block_of(out.after, row, head));
  });
  return out;
}

FusedGatedDelta::Arguments gated_delta_backward_cpu(const FusedGatedDelta::Backward& back) {
  const PreparedDelta in(back.in);
  const std::int64_t h = in.v.size(1);
  const at::Tensor d_o = rows_of_floats(back.grad);
  const at::Tensor d_q = empty_per_head(in.q, h), d_k = empty_per_head(in.k, h), d_v = empty_by_token(in.v);
  const at::Tensor d_beta = at::empty_like(in.beta), d_log_decay = at::empty_like(in.beta);
  for_value_heads(in.v, [&](std::int64_t row, std::int64_t head) {
    kernels::delta_rule_backward(in.shape(), in.head(row, head),
                                 {block_of(back.states, row, head), read_only(matrix_of(back.written, row, head))},
                                 read_only(matrix_of(d_o, row, head)),
                                 {matrix_of(d_q, row, head), matrix_of(d_k, row, head), matrix_of(d_v, row, head),
                                  block_of(d_beta, row, head), block_of(d_log_decay, row, head)});
  });
  FusedGatedDelta::Arguments d;
  d.q = per_group(d_q, back.in.q);
  d.k = per_group(d_k, back.in.k);
  d.v = d_v.to(back.in.v.scalar_type());
  d.beta = d_beta.to(back.in.beta.scalar_type());
  d.log_decay = d_log_decay.to(back.in.log_decay.scalar_type());
  return d;
}

FusedGatedDelta::Results gated_delta_meta(const FusedGatedDelta::Arguments& in) {
  const c10::SymInt b = in.v.sym_size(0), h = in.v.sym_size(1), t = in.v.sym_size(2), w = in.v.sym_size(3);
  const c10::SymInt e = in.q.sym_size(3), chunks = (t + (kDeltaChunk - 1)) / kDeltaChunk;
  const at::TensorOptions options = in.v.options().dtype(at::kFloat);
  return {at::empty_symint({b, t, h, w}, options).transpose(1, 2), at::empty_symint({b, h, e, w}, options),
          at::empty_symint({b, h, chunks, e, w}, options), at::empty_symint({b, h, t, w}, options)};
}

FusedGatedDelta::Arguments gated_delta_backward_meta(const FusedGatedDelta::Backward& back) {
  FusedGatedDelta::Arguments d;
  d.q = dense_like(back.in.q);
  d.k = dense_like(back.in.k);
  d.v = empty_by_token(back.in.v);
  d.beta = dense_like(back.in.beta);
  d.log_decay = dense_like(back.in.log_decay);
  return d;
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedGatedDelta>(library);
  implement<FusedGatedDelta, gated_delta_cpu, gated_delta_backward_cpu>(library, c10::DispatchKey::CPU);
  implement<FusedGatedDelta, gated_delta_meta, gated_delta_backward_meta>(library, c10::DispatchKey::Meta);
}

}  // namespace headroom::ops
