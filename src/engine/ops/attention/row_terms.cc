#include "row_terms.h"

#include <ATen/Parallel.h>

#include "engine/kernels/cpu/attention/mixture/mixture_rows.h"
#include "engine/ops/heads_on_cpu.h"
#include "engine/ops/shapes.h"

namespace headroom::ops {
namespace {

at::Tensor row_terms_reference(const RowTerms::Arguments& in) {
  const at::ScalarType type = in.t.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor t = in.t.to(type), directions = in.directions.to(type);
  return at::cat({t.square().sum(-1).unsqueeze(2), directions.matmul(t.transpose(2, 3))}, 2);
}

Single row_terms_meta(const RowTerms::Arguments& in) {
  return {at::empty_symint({in.t.sym_size(0), in.t.sym_size(1), in.directions.sym_size(1) + 1, in.t.sym_size(2)},
                           in.t.options().dtype(at::kFloat))};
}

RowTerms::Arguments row_terms_backward_meta(const RowTerms::Backward& back) {
  return {empty_by_token(back.in.t), dense_like(back.in.directions)};
}

// Calls body(task, kernel arguments) for every sequence and head of prepared tensors.
template <class Body>
void for_heads(const at::Tensor& t, const at::Tensor& directions, const Body& body) {
  const kernels::Heads rows = view(t);
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3);
  const float* direction = directions.const_data_ptr<float>();
  at::parallel_for(0, t.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t b = task / heads, h = task % heads;
      body(task, kernels::RowTermsInput{t.size(2), e, r, rows.rows(b, h), direction + h * r * e});
    }
  });
}

Single row_terms_cpu(const RowTerms::Arguments& in) {
  const at::Tensor t = prepared(in.t), directions = in.directions.to(at::kFloat).contiguous();
  const std::int64_t rows = 1 + directions.size(1), room = rows * t.size(2);
  const at::Tensor terms = at::empty({t.size(0), t.size(1), rows, t.size(2)}, t.options().dtype(at::kFloat));
  float* to = terms.mutable_data_ptr<float>();
  for_heads(t, directions,
            [&](std::int64_t task, const kernels::RowTermsInput& head) { kernels::row_terms(head, to + task * room); });
  return {terms};
}

RowTerms::Arguments row_terms_backward_cpu(const RowTerms::Backward& back) {
  const at::Tensor t = prepared(back.in.t), directions = back.in.directions.to(at::kFloat).contiguous();
  const at::Tensor grad = back.grad.to(at::kFloat).contiguous();
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3), room = (1 + r) * t.size(2);
  const at::Tensor d_t = empty_by_token(t), d_directions = at::zeros({t.size(0), heads, r, e}, directions.options());
  const kernels::HeadsOut d_rows = view_out(d_t);
  float* d_direction = d_directions.mutable_data_ptr<float>();
  for_heads(t, directions, [&](std::int64_t task, const kernels::RowTermsInput& head) {
    kernels::row_terms_backward(head, grad.const_data_ptr<float>() + task * room,
                                d_rows.rows(task / heads, task % heads), d_direction + task * r * e);
  });
  return {d_t.to(back.in.t.scalar_type()), d_directions.sum(0).to(back.in.directions.scalar_type())};
}

const Registration kRowTermsOnCpu(row_terms_backends(),
                                  {{"kernels", at::kCPU, 0, float32_or_bfloat16}, never_refuses, run<RowTerms>});

}  // namespace

Backends<RowTerms::Arguments>& row_terms_backends() {
  static Backends<RowTerms::Arguments> all("row_terms");
  return all;
}

at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions, Implementation implementation) {
  const RowTerms::Arguments in{t, directions};
  const auto* fused = row_terms_backends().choose_internal(implementation, t, in);
  return fused != nullptr ? fused->run(in) : row_terms_reference(in);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<RowTerms>(library);
  implement<RowTerms, row_terms_meta, row_terms_backward_meta>(library, c10::DispatchKey::Meta);
  implement<RowTerms, row_terms_cpu, row_terms_backward_cpu>(library, c10::DispatchKey::CPU);
}

}  // namespace headroom::ops
