#include "headroom/ops/head_map.h"

#include "gradients.h"
#include "head_map_cases.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops::head_map_test {

using testing::relative_error;

struct Sizes {
  std::int64_t b, h, groups, t, s, rank;
};

HeadMapSide random_side(const Sizes& z, std::int64_t n) {
  return {.factors = at::randn({z.b, n, (2 * z.rank + 1) * z.h}, at::kDouble), .rank = z.rank, .has_gate = true};
}

TEST(HeadMap, RefusesShapesThatDoNotFit) {
  const Sizes z{2, 6, 3, 4, 5, 2};
  const at::Tensor a = at::randn({z.b, z.h, z.t, z.s}, at::kDouble);
  EXPECT_THROW(apply_head_map({.n_groups = 4, .skip = true, .fixed = {}, .query = {}, .key = {}}, a), Error);
  HeadMap map{.n_groups = 3, .skip = true, .fixed = at::ones({1, 6, 6}, at::kDouble), .query = {}, .key = {}};
  EXPECT_THROW(apply_head_map(map, a), Error);
  map.fixed.reset();
  map.query = random_side(z, z.s);
  EXPECT_THROW(apply_head_map(map, a), Error);
  map.query = random_side(z, z.t);
  map.query.has_gate = false;
  EXPECT_THROW(apply_head_map(map, a), Error);
  map.query = {};
  map.query.rank = -1;
  EXPECT_THROW(apply_head_map(map, a), Error);
}

at::Tensor factors(const FactorsCase& z, const std::vector<at::Tensor>& leaves) {
  return head_map_factors(leaves[0], z.weights(leaves));
}

// The decode path and the differentiable implementation must give the same values.
TEST(HeadMapFactors, ImplementationsAgree) {
  at::manual_seed(7);
  const FactorsCase z{17, 24, 2, 2, 8, 2, 3};
  std::vector<at::Tensor> leaves = z.leaves({});
  const at::Tensor many = factors(z, leaves);
  leaves[0] = leaves[0].narrow(0, 1, 16);
  EXPECT_LE(relative_error(factors(z, leaves), many.narrow(0, 1, 16)), 1e-5);
  leaves[0] = leaves[0].detach().requires_grad_(true);
  const at::Tensor with_gradient = factors(z, leaves);
  EXPECT_TRUE(with_gradient.requires_grad());
  EXPECT_LE(relative_error(with_gradient.detach(), many.narrow(0, 1, 16)), 1e-5);
}

TEST(HeadMapFactors, ThreadsDoNotChangeTheResult) {
  const at::NoGradGuard no_grad;
  for (const FactorsCase& z : factors_cases()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      at::manual_seed(7);
      const std::vector<at::Tensor> leaves = z.leaves({type});
      const at::Tensor got = factors(z, leaves);
      EXPECT_EQ(got.scalar_type(), type);
      testing::with_threads([&](int /*threads*/) { EXPECT_TRUE(at::equal(factors(z, leaves), got)) << z.name(); });
    }
  }
}

TEST(HeadMapFactors, AreRefused) {
  const FactorsCase z{17, 4, 2, 1, 3, 1, 2};
  const std::vector<at::Tensor> leaves = z.leaves({}), wide = testing::in_double(leaves);
  EXPECT_THROW(head_map_factors(wide[0], z.weights(wide), Implementation::fused), UserError);
  const auto refused = [&](const char* what, const auto& change) {
    at::Tensor x = leaves[0];
    HeadMapWeights weights = z.weights(leaves);
    change(x, weights);
    EXPECT_THROW(head_map_factors(x, weights), Error) << what;
  };
  refused("no weights", [](auto& /*x*/, HeadMapWeights& w) { w = {}; });
  refused("a stage without w2", [](auto& /*x*/, HeadMapWeights& w) { w.w2.pop_back(); });
  refused("a stage without gate", [](auto& /*x*/, HeadMapWeights& w) { w.gate.pop_back(); });
  refused("another width", [](at::Tensor& x, auto& /*w*/) { x = x.narrow(1, 0, 3); });
  refused("another rank", [](auto& /*x*/, HeadMapWeights& w) { w.w2[1] = at::zeros({1, 3, 2, 2, 2}); });
  refused("too few axes", [](auto& /*x*/, HeadMapWeights& w) { w.w1[0] = at::zeros({4, 3}); });
  refused("no matrix", [](auto& /*x*/, HeadMapWeights& w) { w.gate[0] = at::zeros({4}); });
  refused("a gate for other heads", [](auto& /*x*/, HeadMapWeights& w) { w.gate[1] = at::zeros({4, 3}); });
}

}  // namespace headroom::ops::head_map_test
