#include "row_terms.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "headroom/kernels/cpu/row_terms.h"
#include "heads_on_cpu.h"

namespace headroom::ops {
namespace {

// Calls body(task, what the kernel takes) for every sequence and head.
template <class Body>
void for_heads(const at::Tensor& t, const at::Tensor& directions, const Body& body) {
  const auto rows = view<const float>(t);
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3);
  const float* direction = directions.const_data_ptr<float>();
  at::parallel_for(0, t.size(0) * heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t b = task / heads, h = task % heads;
      body(task, kernels::RowTerms{t.size(2), e, r, {rows.at(b, h), rows.row}, direction + h * r * e});
    }
  });
}

at::Tensor row_terms_cpu(const at::Tensor& t_in, const at::Tensor& directions_in) {
  const at::Tensor t = prepared(t_in), directions = directions_in.to(at::kFloat).contiguous();
  const std::int64_t room = (1 + directions.size(1)) * t.size(2);
  const at::Tensor terms = at::empty({t.size(0), t.size(1), 1 + directions.size(1), t.size(2)}, t.options());
  float* to = terms.mutable_data_ptr<float>();
  for_heads(t, directions,
            [&](std::int64_t task, const kernels::RowTerms& in) { kernels::row_terms(in, to + task * room); });
  return terms;
}

std::tuple<at::Tensor, at::Tensor> row_terms_backward_cpu(const at::Tensor& grad_in, const at::Tensor& t_in,
                                                          const at::Tensor& directions_in) {
  const at::Tensor t = prepared(t_in), directions = directions_in.to(at::kFloat).contiguous();
  const at::Tensor grad = grad_in.to(at::kFloat).contiguous();
  const std::int64_t heads = t.size(1), r = directions.size(1), e = t.size(3), room = (1 + r) * t.size(2);
  const at::Tensor d_t = empty_by_token(t), d_directions = at::zeros({t.size(0), heads, r, e}, t.options());
  const auto d_rows = view<float>(d_t);
  float* d_direction = d_directions.mutable_data_ptr<float>();
  for_heads(t, directions, [&](std::int64_t task, const kernels::RowTerms& in) {
    kernels::row_terms_backward(in, grad.const_data_ptr<float>() + task * room,
                                {d_rows.at(task / heads, task % heads), d_rows.row}, d_direction + task * r * e);
  });
  return {d_t.to(t_in.scalar_type()), d_directions.sum(0).to(directions_in.scalar_type())};
}

at::Tensor row_terms_meta(const at::Tensor& t, const at::Tensor& directions) {
  return at::empty({t.size(0), t.size(1), 1 + directions.size(1), t.size(2)}, t.options().dtype(at::kFloat));
}

std::tuple<at::Tensor, at::Tensor> row_terms_backward_meta(const at::Tensor&, const at::Tensor& t,
                                                           const at::Tensor& directions) {
  return {at::empty_like(t), at::empty_like(directions)};
}

class Terms : public torch::autograd::Function<Terms> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& t,
                            const at::Tensor& directions) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({t, directions});
    return row_terms(t, directions);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    static const auto op = registered<decltype(row_terms_backward_cpu)>("headroom::row_terms_backward");
    const auto saved = context->get_saved_variables();
    auto [d_t, d_directions] = op.call(grads[0], saved[0], saved[1]);
    return {d_t, d_directions};
  }
};

at::Tensor row_terms_autograd(const at::Tensor& t, const at::Tensor& directions) {
  return Terms::apply(t, directions);
}

}  // namespace

at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions) {
  static const auto op = registered<decltype(row_terms_cpu)>("headroom::row_terms");
  return op.call(t, directions);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("row_terms(Tensor t, Tensor directions) -> Tensor");
  library.def("row_terms_backward(Tensor grad, Tensor t, Tensor directions) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("row_terms", row_terms_cpu);
  library.impl("row_terms_backward", row_terms_backward_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("row_terms", row_terms_meta);
  library.impl("row_terms_backward", row_terms_backward_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("row_terms", row_terms_autograd);
}

}  // namespace headroom::ops
