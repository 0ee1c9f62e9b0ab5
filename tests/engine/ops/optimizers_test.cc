#include "headroom/ops/optimizers.h"

#include <cmath>

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops::optimizers_test {

using testing::relative_error;

TEST(AdamW, GlobalNormCoversAllTensorsAndIsIndependentOfThreads) {
  at::manual_seed(2);
  const std::vector<at::Tensor> g = {at::randn({3, 5}), at::randn({100003}), at::randn({64, 1024}).t(), at::Tensor()};
  const double expected = at::cat({g[0].flatten(), g[1], g[2].flatten()}).to(at::kDouble).norm().item<double>();
  const double one = global_norm(g);
  EXPECT_NEAR(one, expected, expected * 1e-6);
  testing::with_threads([&](int threads) { EXPECT_EQ(global_norm(g), one) << threads; });
  EXPECT_EQ(global_norm({at::zeros({0})}), 0.0);
}

TEST(AdamW, RefusesOtherShapesAndStepsBelowOne) {
  const at::Tensor p = at::ones({2, 3}), other = at::ones({3, 2});
  EXPECT_THROW(adamw_step({p}, {other}, {p.clone()}, {p.clone()}, 1, {}), Error);
  EXPECT_THROW(adamw_step({p}, {p.clone()}, {other}, {p.clone()}, 1, {}), Error);
  EXPECT_THROW(adamw_step({p}, {p.clone()}, {p.clone()}, {other}, 1, {}), Error);
  EXPECT_THROW(adamw_step({p}, {p.clone()}, {p.clone()}, {p.clone()}, 0, {}), Error);
  EXPECT_TRUE(at::equal(p, at::ones({2, 3})));
}

// torch's fused step would mix up elements if the strides differed.
TEST(AdamW, TensorsMayHaveAnyMemoryLayout) {
  at::manual_seed(3);
  const at::Tensor start = at::randn({4, 6}), gradient = at::randn({4, 6});
  const auto moved = [&](const at::Tensor& p, const at::Tensor& g, const at::Tensor& m) {
    adamw_step({p}, {g}, {m}, {at::zeros({4, 6})}, 1, {.learning_rate = 0.1});
    return p.clone();
  };
  const at::Tensor expected = moved(start.clone(), gradient.clone(), at::zeros({4, 6}));
  EXPECT_TRUE(at::allclose(moved(start.clone(), gradient.t().contiguous().t(), at::zeros({4, 6})), expected));
  EXPECT_TRUE(at::allclose(moved(start.clone(), gradient.clone(), at::zeros({6, 4}).t()), expected));
  // The stride of an axis of size 1 does not matter.
  const at::Tensor p = start.view({4, 1, 6}).clone(), g = gradient.as_strided({4, 1, 6}, {6, 1, 1});
  adamw_step({p}, {g}, {at::zeros({4, 1, 6})}, {at::zeros({4, 1, 6})}, 1,
             {.learning_rate = 0.1, .implementation = Implementation::fused});
  EXPECT_TRUE(at::allclose(p.view({4, 6}), expected));
  EXPECT_TRUE(at::allclose(moved(at::cat({start, start}, 1).narrow(1, 0, 6), gradient, at::zeros({4, 6})), expected));
}

TEST(Muon, MatricesOfABatchAreSeparate) {
  at::manual_seed(3);
  const at::Tensor g = at::randn({4, 6, 10}), p = at::randn({4, 6, 10});
  g[2].zero_();  // an expert without tokens
  const at::Tensor together = p.clone();
  muon_step({together}, {g}, {at::zeros_like(p)}, {.weight_decay = 0.1});
  EXPECT_LE(relative_error(together[2], p[2] * (1.0 - 1e-3 * 0.1)), 1e-7);
  for (const std::int64_t i : {0, 3}) {
    const at::Tensor alone = p.slice(0, i, i + 1).clone();
    muon_step({alone}, {g.slice(0, i, i + 1)}, {at::zeros_like(alone)}, {.weight_decay = 0.1});
    EXPECT_LE(relative_error(together[i], alone[0]), 1e-6);
    EXPECT_GT(relative_error(together[i], p[i]), 1e-4);
  }
}

TEST(Muon, RefusesWhatHasOtherAxes) {
  EXPECT_THROW(muon_step({at::zeros({1, 1, 1})}, {}, {}, {}), Error);
  EXPECT_THROW(orthogonal(at::zeros({2, 2})), Error);
  const at::Tensor p = at::zeros({1, 2, 3});
  EXPECT_THROW(muon_step({p}, {at::ones({1, 3, 2})}, {at::zeros({1, 2, 3})}, {}), Error);
  EXPECT_THROW(muon_step({p}, {at::ones({1, 2, 3})}, {at::zeros({1, 1, 3})}, {}), Error);
}

}  // namespace headroom::ops::optimizers_test
