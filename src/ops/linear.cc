#include "headroom/ops/linear.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "headroom/core/error.h"
#include "headroom/ops/choice.h"
#include "product.h"
#include "refusal.h"
#include "registered.h"

namespace headroom::ops {
namespace {

at::Tensor linear_cpu(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) {
  return product(x, w, b);
}

at::Tensor linear_meta(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& /*b*/) {
  return at::empty({x.size(0), w.size(1)}, x.options());
}

at::Tensor call_linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) {
  static const auto op = registered<decltype(linear_cpu)>("headroom::linear");
  return op.call(x, w, b);
}

class Linear : public torch::autograd::Function<Linear> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, w});
    context->saved_data["bias"] = b.has_value();
    return call_linear(x, w, b);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &grad = grads[0], &x = saved[0], &w = saved[1];
    torch::autograd::variable_list result(3);
    if (context->needs_input_grad(0)) {
      result[0] = product(grad, w.t());
    }
    if (context->needs_input_grad(1)) {
      result[1] = product_of_columns(x, grad);
    }
    if (context->saved_data["bias"].toBool() && context->needs_input_grad(2)) {
      result[2] = grad.sum(0);
    }
    return result;
  }
};

at::Tensor linear_autograd(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b) {
  return Linear::apply(x, w, b);
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                  Implementation implementation) {
  if (x.dim() != 2 || w.dim() != 2 || x.size(1) != w.size(0) || (b && (b->dim() != 1 || b->size(0) != w.size(1)))) {
    fail("linear: x [N, d_in], w [d_in, d_out] and b [d_out] must fit, got {}, {} and {}", fmt::join(x.sizes(), "x"),
         fmt::join(w.sizes(), "x"), b ? fmt::format("{}", fmt::join(b->sizes(), "x")) : "-");
  }
  if (choose("linear", implementation, cpu_float_refusal(x)) == Implementation::reference) {
    return b ? at::addmm(*b, x, w) : x.mm(w);
  }
  return call_linear(x, w, b);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  library.def("linear(Tensor x, Tensor w, Tensor? b) -> Tensor");
}
TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  library.impl("linear", linear_cpu);
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  library.impl("linear", linear_meta);
}
TORCH_LIBRARY_IMPL(headroom, Autograd, library) {
  library.impl("linear", linear_autograd);
}

}  // namespace headroom::ops
