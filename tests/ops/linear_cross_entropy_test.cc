#include "headroom/ops/linear_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include "headroom/core/error.h"

namespace headroom::ops {
namespace linear_cross_entropy_test {

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

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const at::Tensor target = at::zeros({2}, at::kLong);
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 3}), at::ones({4, 5}), {}, target), Error);
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 4}), at::ones({4, 5}), {}, target + 5), Error);
}

}  // namespace linear_cross_entropy_test
}  // namespace headroom::ops
