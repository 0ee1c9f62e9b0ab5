// linear: schema, reference, backends.
#include "headroom/ops/linear.h"

#include <algorithm>
#include <vector>

#include "dense_matmul.h"
#include "engine/ops/backend.h"
#include "engine/ops/expert_linear/expert_linear_operator.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/ops/choice.h"

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
// torch computes multiplication and bias in one call of the vendor's library.
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

namespace {

// Whether x's dtype is supported by the operator's CPU backend. Counts the choice.
bool chooses_fused(const char* op, const char* backend, Implementation wanted, const at::Tensor& x) {
  const std::string refusal = float32_or_bfloat16(x.scalar_type()) ? "" : refusal_of(x.scalar_type());
  return choose(op, wanted, refusal, backend) == Implementation::fused;
}

}  // namespace

at::Tensor linear_batch_invariant(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& b,
                                  Implementation implementation) {
  if (!w.is_cpu() || x.size(0) == 1) {
    return linear(x, w, b, implementation);
  }
  if (chooses_fused("linear", "products", implementation, x)) {
    return dense_matmul_batch_invariant(in_type(x, w.scalar_type()), w, b);
  }
  std::vector<at::Tensor> rows =
      transformed(x.split(1), [&](const at::Tensor& row) { return linear(row, w, b, Implementation::reference); });
  return at::cat(rows);
}

std::vector<at::Tensor> linear_batch_invariant_of_each(const at::Tensor& x, const std::vector<MatrixAndBias>& matrices,
                                                       Implementation implementation) {
  const bool alike = std::ranges::all_of(matrices, [&](const MatrixAndBias& m) {
    return m.matrix.is_cpu() && m.matrix.scalar_type() == matrices[0].matrix.scalar_type();
  });
  const auto fused = [&](const MatrixAndBias&) { return chooses_fused("linear", "products", implementation, x); };
  if (alike && x.size(0) > 1 && std::ranges::all_of(matrices, fused)) {
    return dense_matmuls_batch_invariant(in_type(x, matrices[0].matrix.scalar_type()), matrices);
  }
  return transformed(matrices,
                     [&](const auto& m) { return linear_batch_invariant(x, m.matrix, m.bias, implementation); });
}

at::Tensor expert_linear_batch_invariant(const ExpertLinearInputs& in, Implementation implementation) {
  if (!in.bank.is_cpu() || in.index.size(0) == 1) {
    return expert_linear(in, implementation);
  }
  if (chooses_fused("expert_linear", "kernels", implementation, in.input)) {
    return expert_matmul_batch_invariant(in);
  }
  std::vector<at::Tensor> rows;
  for (std::int64_t row = 0; row < in.index.size(0); ++row) {
    ExpertLinearInputs one = in;
    one.input = in.input.narrow(0, row, 1);
    one.index = in.index.narrow(0, row, 1);
    if (in.weight) {
      one.weight = in.weight->narrow(0, row, 1);
    }
    rows.push_back(expert_linear(one, Implementation::reference));
  }
  return at::cat(rows);
}

}  // namespace headroom::ops
