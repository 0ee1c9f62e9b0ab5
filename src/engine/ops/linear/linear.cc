#include "headroom/ops/linear.h"

#include "engine/ops/shapes.h"
#include "headroom/core/error.h"
#include "operator.h"

namespace headroom::ops {
namespace {

Single linear_meta(const FusedLinear::Arguments& in) {
  return {at::empty_symint({in.x.sym_size(0), in.w.sym_size(1)}, in.w.options())};
}

FusedLinear::Arguments linear_backward_meta(const FusedLinear::Backward& back) {
  FusedLinear::Arguments d;
  d.x = back.wants(0) ? dense_like(back.x) : at::Tensor();
  d.w = back.wants(1) ? dense_like(back.w) : at::Tensor();
  if (back.wants(2)) {
    d.b = at::empty_symint({back.grad.sym_size(1)}, back.grad.options());
  }
  return d;
}

at::Tensor linear_call(const Call<FusedLinear::Arguments>& c) {
  require_floating("linear", "x", {c.in.x});
  require_floating("linear", "w and b", {c.in.w, c.in.b.value_or(c.in.w)});
  return linear(c.in.x, c.in.w, c.in.b, implementation_named(c.implementation));
}

}  // namespace

Backends<FusedLinear::Arguments>& linear_backends() {
  static Backends<FusedLinear::Arguments> all("linear");
  return all;
}

at::Tensor linear_reference(const FusedLinear::Arguments& in) {
  const at::Tensor rows = in.x.to(in.w.scalar_type());
  return in.b ? at::addmm(*in.b, rows, in.w) : rows.mm(in.w);
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                  Implementation implementation) {
  if (x.dim() != 2 || w.dim() != 2 || x.sym_size(1) != w.sym_size(0) ||
      (b && (b->dim() != 1 || b->sym_size(0) != w.sym_size(1)))) {
    fail("linear: x [N, d_in], w [d_in, d_out] and b [d_out] must fit, got {}, {} and {}", shape_of(x), shape_of(w),
         b ? shape_of(*b) : "-");
  }
  const FusedLinear::Arguments in{x, w, b};
  const auto* fused = linear_backends().choose(implementation, x, in);
  return fused != nullptr ? fused->run(in) : linear_reference(in);
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedLinear>(library);
  offer<Call<FusedLinear::Arguments>, linear_call>(library, "linear");
}
TORCH_LIBRARY_IMPL(headroom, Meta, library) {
  implement<FusedLinear, linear_meta, linear_backward_meta>(library);
}

}  // namespace headroom::ops
