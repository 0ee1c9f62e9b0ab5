#include "headroom/ops/adamw.h"

#include <cmath>

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace adamw_test {

TEST(AdamW, OneStepByHand) {
  const at::Tensor p = at::full({1}, 2.0, at::kDouble), g = at::full({1}, 0.5, at::kDouble);
  const at::Tensor m = at::zeros({1}, at::kDouble), v = at::zeros({1}, at::kDouble);
  adamw_step({p}, {g}, {m}, {v}, 1, {.learning_rate = 0.1, .weight_decay = 0.01});
  // Bias correction makes the first step lr * g / (|g| + eps), after the decay.
  EXPECT_NEAR(p.item<double>(), 2.0 * (1 - 0.1 * 0.01) - 0.1 * 0.5 / (0.5 + 1e-8), 1e-12);
  EXPECT_NEAR(m.item<double>(), 0.05, 1e-15);
  EXPECT_NEAR(v.item<double>(), 0.00025, 1e-15);
}

TEST(AdamW, GlobalNormIsTheNormOfAllAndIndependentOfThreads) {
  at::manual_seed(2);
  const std::vector<at::Tensor> g = {at::randn({3, 5}), at::randn({100003}), at::randn({64, 1024}).t(), at::Tensor()};
  const double expected = at::cat({g[0].flatten(), g[1], g[2].flatten()}).to(at::kDouble).norm().item<double>();
  const double one = global_norm(g);
  EXPECT_NEAR(one, expected, expected * 1e-6);
  testing::with_threads([&](int threads) { EXPECT_EQ(global_norm(g), one) << threads; });
  EXPECT_EQ(global_norm({at::zeros({0})}), 0.0);
}

TEST(AdamW, RefusesListsOfDifferentLength) {
  EXPECT_THROW(adamw_step({at::zeros({1})}, {}, {}, {}, 1, {}), Error);
}

TEST(AdamW, RefusesOtherShapesAndAStepBeforeTheFirst) {
  const at::Tensor p = at::ones({2, 3}), other = at::ones({3, 2});
  EXPECT_THROW(adamw_step({p}, {other}, {p.clone()}, {p.clone()}, 1, {}), Error);
  EXPECT_THROW(adamw_step({p}, {p.clone()}, {other}, {p.clone()}, 1, {}), Error);
  EXPECT_THROW(adamw_step({p}, {p.clone()}, {p.clone()}, {other}, 1, {}), Error);
  EXPECT_THROW(adamw_step({p}, {p.clone()}, {p.clone()}, {p.clone()}, 0, {}), Error);
  EXPECT_TRUE(at::equal(p, at::ones({2, 3})));
}

// torch's fused step would take one tensor's numbers for another's.
TEST(AdamW, TensorsMayLieInMemoryAsTheyLike) {
  at::manual_seed(3);
  const at::Tensor start = at::randn({4, 6}), gradient = at::randn({4, 6});
  const auto moved = [&](const at::Tensor& p, const at::Tensor& g, const at::Tensor& m) {
    adamw_step({p}, {g}, {m}, {at::zeros({4, 6})}, 1, {.learning_rate = 0.1});
    return p.clone();
  };
  const at::Tensor expected = moved(start.clone(), gradient.clone(), at::zeros({4, 6}));
  EXPECT_TRUE(at::allclose(moved(start.clone(), gradient.t().contiguous().t(), at::zeros({4, 6})), expected));
  EXPECT_TRUE(at::allclose(moved(start.clone(), gradient.clone(), at::zeros({6, 4}).t()), expected));
  // Along an axis with one entry the stride says nothing.
  const at::Tensor p = start.view({4, 1, 6}).clone(), g = gradient.as_strided({4, 1, 6}, {6, 1, 1});
  adamw_step({p}, {g}, {at::zeros({4, 1, 6})}, {at::zeros({4, 1, 6})}, 1,
             {.learning_rate = 0.1, .implementation = Implementation::fused});
  EXPECT_TRUE(at::allclose(p.view({4, 6}), expected));
  EXPECT_TRUE(at::allclose(moved(at::cat({start, start}, 1).narrow(1, 0, 6), gradient, at::zeros({4, 6})), expected));
}

}  // namespace adamw_test
}  // namespace headroom::ops
