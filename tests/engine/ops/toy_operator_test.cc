// Tests engine/ops/operator.h with a toy operator, which is written like the real ones and quoted in docs/operators.md.
#include <ATen/core/dispatch/Dispatcher.h>

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"
#include "engine/ops/shapes.h"
#include "gradients.h"
#include "headroom/ops/choice.h"

namespace headroom::ops::toy_operator_test {

// The example begins.
// scale_rows.cc: y_ij = factor w_i x_ij. Without w, w_i = 1.
struct FusedScaleRows {
  static constexpr const char* kName = "toy_scale_rows_fused";
  struct Arguments {
    at::Tensor x;      // [n, d]
    OptionalTensor w;  // [n]
    double factor = 1.0;
    template <class V>
    void visit(V& v) {
      v("x", x, "w", w, "factor", factor);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;  // the gradient of y, then the arguments
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }
};
using ScaleRows = FusedScaleRows::Arguments;

// These functions are the checks, the reference, the choice of the implementation, and the Python names.
Backends<ScaleRows>& scale_rows_backends() {
  static Backends<ScaleRows> all("toy_scale_rows");
  return all;
}

at::Tensor scale_rows_reference(const ScaleRows& in) {
  return (in.w ? in.x * in.w->unsqueeze(1) : in.x) * in.factor;
}

at::Tensor scale_rows(const ScaleRows& in, Implementation implementation = Implementation::automatic) {
  if (in.x.dim() != 2 || (in.w && (in.w->dim() != 1 || in.w->sym_size(0) != in.x.sym_size(0)))) {
    fail("scale_rows: x [n, d] and w [n] must fit, got {} and {}", shape_of(in.x), in.w ? shape_of(*in.w) : "-");
  }
  const auto* fused = scale_rows_backends().choose(implementation, in.x, in);
  return fused != nullptr ? fused->run(in) : scale_rows_reference(in);
}

at::Tensor scale_rows_call(const Call<ScaleRows>& c) {
  return scale_rows(c.in, implementation_named(c.implementation));
}

// Returns the shapes of the results, for torch.compile.
Single scale_rows_meta(const ScaleRows& in) {
  return {dense_like(in.x)};
}
ScaleRows scale_rows_backward_meta(const FusedScaleRows::Backward& back) {
  return {dense_like(back.in.x), back.in.w ? OptionalTensor(dense_like(*back.in.w)) : std::nullopt};
}

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  define<FusedScaleRows>(library);
  implement<FusedScaleRows, scale_rows_meta, scale_rows_backward_meta>(library, c10::DispatchKey::Meta);
  define_public<Call<ScaleRows>, scale_rows_call>(library, "toy_scale_rows");
}

// The CPU backend. The backward pass returns the gradients as Arguments; absent gradients are undefined.
Single scale_rows_cpu(const ScaleRows& in) {
  const at::Tensor x = in.x.contiguous(), y = at::empty(x.sizes(), x.options());
  const at::Tensor w = in.w.value_or(at::ones({x.size(0)}, x.options())).contiguous();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float scale = static_cast<float>(in.factor) * w.const_data_ptr<float>()[i / x.size(1)];
    y.mutable_data_ptr<float>()[i] = scale * x.const_data_ptr<float>()[i];
  }
  return {y};
}

ScaleRows scale_rows_backward_cpu(const FusedScaleRows::Backward& back) {
  ScaleRows d;
  d.x = scale_rows_cpu({back.grad, back.in.w, back.in.factor}).result;
  if (back.in.w) {
    d.w = (back.grad * back.in.x).sum(1) * back.in.factor;
  }
  return d;
}

std::string scale_rows_refusal(const ScaleRows& in) {
  return in.x.sym_size(0) > 100 ? "more than 100 rows" : "";
}

const Registration kScaleRowsOnCpu(scale_rows_backends(),
                                   {{"loop", at::kCPU, 0, [](at::ScalarType type) { return type == at::kFloat; }},
                                    scale_rows_refusal,
                                    run<FusedScaleRows>});

TORCH_LIBRARY_FRAGMENT(headroom, library) {
  implement<FusedScaleRows, scale_rows_cpu, scale_rows_backward_cpu>(library, c10::DispatchKey::CPU);
}
// The example ends.

auto run_scaled(bool weighted, Implementation implementation) {
  return [=](const std::vector<at::Tensor>& x) {
    return scale_rows({x[0], weighted ? OptionalTensor(x[1]) : std::nullopt, 0.5}, implementation);
  };
}

// The fused version has one multiplication more or less than the reference, each rounded to 2^-24.
TEST(ToyOperator, HasItsDerivatives) {
  at::manual_seed(1);
  for (const bool weighted : {true, false}) {
    std::vector<at::Tensor> leaves = {at::randn({5, 3})};
    if (weighted) {
      leaves.push_back(at::randn({5}));
    }
    testing::expect_close(testing::evaluate(run_scaled(weighted, Implementation::fused), leaves),
                          testing::evaluate(run_scaled(weighted, Implementation::reference), leaves), 3e-7,
                          weighted ? "weighted" : "alone");
  }
}

TEST(ToyOperator, UnneededGradientsAreUndefined) {
  const at::Tensor x = at::ones({2, 3}), w = at::ones({2}).requires_grad_(true);
  const at::Tensor y = scale_rows({x, w}, Implementation::fused);
  ASSERT_TRUE(y.requires_grad());
  EXPECT_TRUE(at::equal(torch::autograd::grad({y.sum()}, {w})[0], at::full({2}, 3.0)));
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(scale_rows({x, w}, Implementation::fused).requires_grad());
}

TEST(ToyOperator, UsesTheReferenceWhereTheBackendRefuses) {
  EXPECT_EQ(scale_rows({at::ones({200, 1})}).sizes(), at::IntArrayRef({200, 1}));
  EXPECT_EQ(scale_rows({at::ones({2, 1}, at::kDouble)}).scalar_type(), at::kDouble);
  EXPECT_THROW(scale_rows({at::ones({200, 1})}, Implementation::fused), UserError);
}

TEST(ToyOperator, MetaTensorsGetShapes) {
  ScaleRows in{at::empty({5, 3}, at::TensorOptions(at::kFloat).device(at::kMeta))};
  EXPECT_EQ(call<FusedScaleRows>(in).result.sizes(), at::IntArrayRef({5, 3}));
}

// Calls through the dispatcher, as Python does.
at::Tensor by_name(const Call<ScaleRows>& arguments) {
  return call_boxed<Single>(find_operator("toy_scale_rows"), arguments).result;
}

TEST(ToyOperator, IsOfferedByName) {
  EXPECT_EQ(c10::str(find_operator("toy_scale_rows").schema()),
            "headroom::toy_scale_rows(Tensor x, Tensor? w=None, float factor=1., *, str implementation=\"automatic\") "
            "-> Tensor");
  EXPECT_EQ(c10::str(find_operator("toy_scale_rows_fused_backward").schema()),
            "headroom::toy_scale_rows_fused_backward(Tensor grad, Tensor x, Tensor? w=None, float factor=1.) -> "
            "(Tensor x, Tensor w)");
  const at::Tensor x = at::ones({2, 3});
  EXPECT_TRUE(at::equal(by_name({{x, std::nullopt, 2.0}}), x * 2));
  EXPECT_TRUE(at::equal(by_name({{x, at::zeros({2})}, "reference"}), x * 0));
}

TEST(ToyOperator, RefusesAsValueErrors) {
  const at::Tensor x = at::ones({2, 3});
  const auto complaint = [](const Call<ScaleRows>& arguments) -> std::string {
    try {
      by_name(arguments);
    } catch (const c10::ValueError& error) {
      return error.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_EQ(complaint({{x, at::ones({3})}}), "scale_rows: x [n, d] and w [n] must fit, got 2x3 and 3");
  EXPECT_EQ(complaint({{x}, "quick"}), "implementation: must be automatic, reference or fused, got \"quick\"");
  EXPECT_EQ(complaint({{x, at::empty({2}, at::kMeta)}}),
            "toy_scale_rows: tensors must be on one device, got cpu and meta");
}

}  // namespace headroom::ops::toy_operator_test
