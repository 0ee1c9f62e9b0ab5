// Fused operators in bfloat16 against a float64 reference of the same, already rounded numbers, at sizes that fill
// several tiles and at odd ones.
//
// bfloat16 has 8 significant bits: rounding x errs by at most u |x|, u = 2^-8. The operators take bfloat16 in and hand
// bfloat16 out, and sum in float32, so that a bound for each number of a result is u times the sum of what was rounded
// on the way to it. Each test says which numbers those are; the rest is float32's share, measured against the
// largest number as in the tests of float32 itself, and second-order terms, for which the bound is 2% wider.
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

// The gradient that arrives: not rounded again, so that both sides begin from the same.
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

// As result_of(), with `name` computed by its fused version, which it chose itself.
inline Result run_fused(const char* name, const Op& op, const Tensors& inputs) {
  ops::forget_choices();
  Result result = result_of(op, inputs);
  const std::map<std::string, ops::Choices> chosen = ops::choices();
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

// |got - exact| <= 1.02 (u rounded + moved) + float32's share, number by number. `rounded`: the sum of the absolute
// values that were rounded to bfloat16.
struct Bound {
  at::Tensor rounded;
  at::Tensor moved;  // undefined: nothing
  double single = 0.0;
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

// What is rounded when a tensor itself is.
inline at::Tensor itself(const at::Tensor& exact, const at::Tensor& got) {
  return got.scalar_type() == at::kBFloat16 ? exact.abs() : at::zeros_like(exact);
}

}  // namespace headroom::testing::bfloat16
