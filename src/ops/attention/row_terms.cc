#include "ops/attention/row_terms.h"

#include <ATen/Parallel.h>

#include "headroom/kernels/cpu/row_terms.h"
#include "ops/heads_on_cpu.h"
#include "ops/operator.h"
#include "ops/shapes.h"

namespace headroom::ops {
namespace {

struct RowTerms {
  static constexpr const char* kName = "row_terms";
  struct Arguments {
    at::Tensor t, directions;
    template <class V>
    void visit(V& v) {
      v("t", t);
      v("directions", directions);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }
};

// Calls body(task, what the kernel takes) for every sequence and head of prepared tensors.
template <class Body>
void for_heads(const at::Tensor& t, const at::Tensor& directions, const Body& body) {
  const kernels::Heads rows = view(t);
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3);
  const float* direction = directions.const_data_ptr<float>();
  at::parallel_for(0, t.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t b = task / heads, h = task % heads;
      body(task, kernels::RowTerms{t.size(2), e, r, rows.rows(b, h), direction + h * r * e});
    }
  });
}

Single row_terms_cpu(const RowTerms::Arguments& in) {
  const at::Tensor t = prepared(in.t), directions = in.directions.to(at::kFloat).contiguous();
  const std::int64_t rows = 1 + directions.size(1), room = rows * t.size(2);
  const at::Tensor terms = at::empty({t.size(0), t.size(1), rows, t.size(2)}, t.options().dtype(at::kFloat));
  float* to = terms.mutable_data_ptr<float>();
  for_heads(t, directions,
            [&](std::int64_t task, const kernels::RowTerms& head) { kernels::row_terms(head, to + task * room); });
  return {terms};
}

RowTerms::Arguments row_terms_backward_cpu(const RowTerms::Backward& back) {
  const at::Tensor t = prepared(back.in.t), directions = back.in.directions.to(at::kFloat).contiguous();
  const at::Tensor grad = back.grad.to(at::kFloat).contiguous();
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3), room = (1 + r) * t.size(2);
  const at::Tensor d_t = empty_by_token(t), d_directions = at::zeros({t.size(0), heads, r, e}, directions.options());
  const kernels::HeadsOut d_rows = view_out(d_t);
  float* d_direction = d_directions.mutable_data_ptr<float>();
  for_heads(t, directions, [&](std::int64_t task, const kernels::RowTerms& head) {
    kernels::row_terms_backward(head, grad.const_data_ptr<float>() + task * room,
                                d_rows.rows(task / heads, task % heads), d_direction + task * r * e);
  });
  return {d_t.to(back.in.t.scalar_type()), d_directions.sum(0).to(back.in.directions.scalar_type())};
}

Single row_terms_meta(const RowTerms::Arguments& in) {
  return {at::empty_symint({in.t.sym_size(0), in.t.sym_size(1), in.directions.sym_size(1) + 1, in.t.sym_size(2)},
                           in.t.options().dtype(at::kFloat))};
}

RowTerms::Arguments row_terms_backward_meta(const RowTerms::Backward& back) {
  return {empty_by_token(back.in.t), dense_like(back.in.directions)};
}

}  // namespace

at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions) {
  return call<RowTerms>({t, directions}).result;
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<RowTerms>(library);
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<RowTerms, row_terms_cpu, row_terms_backward_cpu>(library);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  implement<RowTerms, row_terms_meta, row_terms_backward_meta>(library);
}

}  // namespace headroom::ops
