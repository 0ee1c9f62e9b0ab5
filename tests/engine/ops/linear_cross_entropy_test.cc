#include "headroom/ops/linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "headroom/core/error.h"

namespace headroom::ops::linear_cross_entropy_test {

TEST(LinearCrossEntropy, IsTheMeanOverRowsThatCount) {
  const at::Tensor x = at::zeros({3, 2}), w = at::zeros({2, 8});
  const at::Tensor target = at::tensor({4, -1, 0}, at::kLong);
  EXPECT_NEAR(linear_cross_entropy(x, w, {}, target).item<float>(), std::log(8.0), 1e-6);
  EXPECT_EQ(linear_cross_entropy(x, w, {}, at::full({3}, -1, at::kLong)).item<float>(), 0.0F);
}

TEST(LinearCrossEntropy, HugeLogitsStayFinite) {
  const at::Tensor x = at::full({2, 1}, 1e4), w = at::tensor({1.0F, -1.0F}).view({1, 2});
  const at::Tensor target = at::tensor({1, 0}, at::kLong);
  EXPECT_NEAR(linear_cross_entropy(x, w, {}, target).item<float>(), 1e4, 1.0);
}

TEST(LinearCrossEntropy, RefusesMismatchedInputs) {
  const at::Tensor target = at::zeros({2}, at::kLong);
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 3}), at::ones({4, 5}), {}, target), Error);
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 4}), at::ones({4, 5}), {}, target + 5), Error);
}

// The rows fill several blocks, and both implementations are tested.
TEST(LinearCrossEntropy, IndividualLosses) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({1500, 6}), w = at::randn({6, 9000}), b = at::randn({9000});
  at::Tensor target = at::randint(9000, {1500}, at::kLong);
  target.masked_fill_(at::arange(1500).remainder(7).eq(0), -1);
  const at::Tensor counted = target.ge(0).nonzero().squeeze(1);
  const at::Tensor expected = -(x.to(at::kDouble).mm(w.to(at::kDouble)) + b.to(at::kDouble))
                                   .log_softmax(1)
                                   .index_select(0, counted)
                                   .gather(1, target.index_select(0, counted).unsqueeze(1))
                                   .squeeze(1);
  // A logit has seven roundings, and a loss is the difference of two values of that size. The sum of 9000 exponentials,
  // in at least four partial sums, has a relative error that is the logarithm's absolute error.
  const double largest = (x.abs().mm(w.abs()) + b.abs()).max().item<double>();
  const double bound = (2.0 * 7.0 * largest + 9000.0 / 4.0) * std::numeric_limits<float>::epsilon() / 2.0;
  for (const Implementation which : {Implementation::fused, Implementation::reference}) {
    const at::Tensor got = token_cross_entropy(x, w, b, target, which);
    EXPECT_EQ(got.sizes(), expected.sizes());
    EXPECT_LT((got.to(at::kDouble) - expected).abs().max().item<double>(), bound);
    EXPECT_NEAR(got.mean().item<double>(), linear_cross_entropy(x, w, b, target, which).item<double>(), 1e-5);
  }
  EXPECT_EQ(token_cross_entropy(x, w, {}, at::full({1500}, -1, at::kLong)).numel(), 0);
}

// The weight is transposed like a tied embedding [V, d]; the rows fill one block and two blocks.
TEST(LinearCrossEntropy, GradientOfATransposedWeightHasItsMemoryOrder) {
  at::manual_seed(4);
  for (const std::int64_t rows : {70, 1500}) {
    const at::Tensor x = at::randn({rows, 3}, at::kDouble), target = at::randint(9, {rows}, at::kLong);
    const at::Tensor embedding = at::randn({9, 3}, at::kDouble).requires_grad_();
    const at::Tensor w = embedding.detach().t().contiguous().requires_grad_();
    const at::Tensor gradient =
        torch::autograd::grad({linear_cross_entropy(x, embedding.t(), {}, target)}, {embedding})[0];
    const at::Tensor expected = torch::autograd::grad({linear_cross_entropy(x, w, {}, target)}, {w})[0];
    EXPECT_TRUE(gradient.is_contiguous());
    EXPECT_TRUE(expected.is_contiguous());
    EXPECT_TRUE(gradient.t().allclose(expected, 1e-12, 1e-12));
  }
}

TEST(LinearCrossEntropy, ANanInAnyColumnGivesNan) {
  const at::Tensor x = at::randn({5, 8}), w = at::randn({8, 7}), target = at::arange(5, at::kLong);
  w[3][6].fill_(std::numeric_limits<double>::quiet_NaN());  // the column is not a target
  EXPECT_TRUE(linear_cross_entropy(x, w, {}, target, Implementation::fused).isnan().item<bool>());
}

}  // namespace headroom::ops::linear_cross_entropy_test
