// linear: schema, reference, backends.
#include "headroom/ops/linear.h"

#include "dense_matmul.h"
#include "engine/ops/backend.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace {

struct FusedLinear {
  static constexpr const char* kName = "linear_fused";
  struct Arguments {
    at::Tensor x, w;
    OptionalTensor b;
    template <class V>
    void visit(V& v) {
      v("x", x, "w", w, "b", b);
    }
  };
  using Results = Single;
  struct Backward {
    at::Tensor grad, x, w;
    std::vector<bool> wanted;  // of x, w, b; empty: all
    template <class V>
    void visit(V& v) {
      v("grad", grad, "x", x, "w", w, "wanted", wanted);
    }
    bool wants(std::size_t i) const { return wanted.empty() || wanted[i]; }
  };
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in.x, in.w, {}}; }
};

Backends<FusedLinear::Arguments>& linear_backends() {
  static Backends<FusedLinear::Arguments> all("linear");
  return all;
}

at::Tensor linear_reference(const FusedLinear::Arguments& in) {
  const at::Tensor rows = in.x.to(in.w.scalar_type());
  return in.b ? at::addmm(*in.b, rows, in.w) : rows.mm(in.w);
}

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

Single linear_cpu(const FusedLinear::Arguments& in) {
  return {dense_matmul(in_type(in.x, in.w.scalar_type()), in.w, in.b)};
}

FusedLinear::Arguments linear_backward_cpu(const FusedLinear::Backward& back) {
  FusedLinear::Arguments d;
  d.x = back.wants(0) ? dense_matmul(back.grad, back.w.t()).to(back.x.scalar_type()) : at::Tensor();
  d.w = back.wants(1) ? dense_matmul_transposed(back.x.to(back.w.scalar_type()), back.grad) : at::Tensor();
  if (back.wants(2)) {
    d.b = back.grad.sum(0);
  }
  return d;
}

const Registration kLinearOnCpu(linear_backends(),
                                {{"products", at::kCPU, 0, float32_or_bfloat16}, never_refuses, run<FusedLinear>});
// One call of the vendor's library computes product and bias.
const Registration kLinearOnCuda(linear_backends(),
                                 {{"torch", at::kCUDA, 0, any_type}, never_refuses, linear_reference});

}  // namespace

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
  implement<FusedLinear, linear_meta, linear_backward_meta>(library, c10::DispatchKey::Meta);
  implement<FusedLinear, linear_cpu, linear_backward_cpu>(library, c10::DispatchKey::CPU);
  define_public<Call<FusedLinear::Arguments>, linear_call>(library, "linear");
}

}  // namespace headroom::ops
