#include "operator.h"
#include "product.h"

namespace headroom::ops {
namespace {

Single linear_cpu(const FusedLinear::Arguments& in) {
  return {product(in.x.to(in.w.scalar_type()), in.w, in.b)};
}

FusedLinear::Arguments linear_backward_cpu(const FusedLinear::Backward& back) {
  FusedLinear::Arguments d;
  d.x = back.wants(0) ? product(back.grad, back.w.t()).to(back.x.scalar_type()) : at::Tensor();
  d.w = back.wants(1) ? product_of_columns(back.x.to(back.w.scalar_type()), back.grad) : at::Tensor();
  if (back.wants(2)) {
    d.b = back.grad.sum(0);
  }
  return d;
}

[[maybe_unused]] const bool kLinearOnCpu =
    linear_backends().add({{"products", at::kCPU, 0, float32_or_bfloat16}, never, run<FusedLinear>});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedLinear, linear_cpu, linear_backward_cpu>(library);
}

}  // namespace headroom::ops
