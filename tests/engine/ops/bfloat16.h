// Compares fused operators in bfloat16 with a float64 reference on the same (already rounded) inputs, at sizes that
// fill several tiles and at odd ones.
//
// bfloat16 has 8 significant bits: rounding x has an error of at most u |x|, u = 2^-8. The operators read and write
// bfloat16 and accumulate in float32, so that an element's error is at most u times the sum of the absolute values that
// were rounded on the way to it, which each test derives. Added to it are float32's error, relative to the largest
// element as in the float32 tests, and 2% for second-order terms.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <map>

#include "gradients.h"
#include "headroom/ops/choice.h"

namespace headroom::testing::bfloat16 {

using Tensors = std::vector<at::Tensor>;
using Op = std::function<at::Tensor(const Tensors&)>;

inline constexpr double kUnit = 1.0 / 256, kSecondOrder = 1.02;

inline at::Tensor bfloat(at::IntArrayRef shape, double size = 1.0) {
  return (at::randn(shape, at::kDouble) * size).to(at::kBFloat16);
}

// The incoming gradient, representable in bfloat16, so that both sides start from the same values.
inline at::Tensor arriving(const at::Tensor& value) {
  return at::cos(at::arange(value.numel(), at::kDouble)).to(at::kBFloat16).view(value.sizes()).to(value.scalar_type());
}

inline Tensors with_gradients(const Tensors& inputs) {
  Tensors leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.detach().clone().requires_grad_(true));
  }
  return leaves;
}

struct Result {
  at::Tensor value;
  Tensors gradients;
};

inline Result result_of(const Op& op, const Tensors& inputs) {
  const Tensors leaves = with_gradients(inputs);
  const at::Tensor value = op(leaves);
  return {value.detach(), torch::autograd::grad({value}, leaves, {arriving(value)})};
}

// As result_of(); expects that operator `name` chose its fused version.
inline Result run_fused(const char* name, const Op& op, const Tensors& inputs) {
  ops::reset_implementation_counts();
  Result result = result_of(op, inputs);
  const std::map<std::string, ops::ImplementationCounts> chosen = ops::implementation_counts();
  EXPECT_EQ(chosen.at(name).reference, 0) << name << ": " << chosen.at(name).refusal;
  EXPECT_GT(chosen.at(name).fused, 0) << name;
  return result;
}

inline double largest(const at::Tensor& t) {
  return t.abs().max().item<double>();
}

inline double largest(const Tensors& all) {
  double most = 0.0;
  for (const at::Tensor& t : all) {
    most = std::max(most, largest(t));
  }
  return most;
}

// Elementwise bound: |got - exact| <= 1.02 (u rounded + moved) + single.
struct Bound {
  at::Tensor rounded;   // sum of the absolute values that were rounded to bfloat16
  at::Tensor moved;     // error that follows from the rounding of another value; undefined: none
  double single = 0.0;  // float32's error
};

inline void expect_within(const at::Tensor& got, const at::Tensor& exact, const Bound& bound, const std::string& what) {
  ASSERT_EQ(got.sizes(), exact.sizes()) << what;
  at::Tensor allowed = bound.rounded * (kUnit * kSecondOrder) + bound.single;
  if (bound.moved.defined()) {
    allowed = allowed + bound.moved.abs() * kSecondOrder;
  }
  const double worst = ((got.to(at::kDouble) - exact).abs() / allowed).max().item<double>();
  EXPECT_LE(worst, 1.0) << what;  // false for a NaN as well
}

// The `rounded` of a result that is rounded once, 0 if it is not bfloat16.
inline at::Tensor itself(const at::Tensor& exact, const at::Tensor& got) {
  return got.scalar_type() == at::kBFloat16 ? exact.abs() : at::zeros_like(exact);
}

}  // namespace headroom::testing::bfloat16
