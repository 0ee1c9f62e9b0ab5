#include "ops/backend.h"
#include "ops/float_on_cpu.h"
#include "ops/linear/operator.h"
#include "ops/linear/product.h"

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

std::string linear_refusal(const FusedLinear::Arguments& in) {
  return float_refusal(in.x);
}

[[maybe_unused]] const bool kLinearOnCpu =
    add_backend<FusedLinear::Arguments, at::Tensor>(at::kCPU, {linear_refusal, run<FusedLinear>});

}  // namespace

TORCH_LIBRARY_IMPL(headroom, CPU, library) {
  implement<FusedLinear, linear_cpu, linear_backward_cpu>(library);
}

}  // namespace headroom::ops
