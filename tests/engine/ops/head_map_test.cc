#include "headroom/ops/head_map.h"

#include <cmath>

#include "gradients.h"
#include "head_map_cases.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops {
namespace head_map_test {

using testing::relative_error;

struct Sizes {
  std::int64_t b, h, groups, t, s, rank;
};

// The definition, one element at a time.
at::Tensor by_hand(const HeadMap& map, const at::Tensor& a, const Sizes& z) {
  at::Tensor out = at::zeros_like(a);
  const std::int64_t m = z.h / z.groups;
  const auto in = a.accessor<double, 4>();
  auto result = out.accessor<double, 4>();
  for (std::int64_t b = 0; b < z.b; ++b) {
    for (std::int64_t i = 0; i < z.t; ++i) {
      for (std::int64_t j = 0; j < z.s; ++j) {
        for (std::int64_t n = 0; n < z.h; ++n) {
          double sum = map.skip ? in[b][n][i][j] : 0.0;
          const std::int64_t first = n / m * m;
          for (std::int64_t from = first; from < first + m; ++from) {
            double weight = map.fixed ? (*map.fixed)[n / m][from - first][n - first].item<double>() : 0.0;
            for (const auto& [side, token] : {std::pair(&map.query, i), std::pair(&map.key, j)}) {
              for (std::int64_t r = 0; r < side->rank; ++r) {
                weight += side->u()[b][token][r][from].item<double>() * side->w()[b][token][r][n].item<double>();
              }
              weight += side->has_gate && from == n ? side->gate()[b][token][n].item<double>() : 0.0;
            }
            sum += weight * in[b][from][i][j];
          }
          result[b][n][i][j] = sum;
        }
      }
    }
  }
  return out;
}

HeadMapSide random_side(const Sizes& z, std::int64_t n) {
  return {.factors = at::randn({z.b, n, (2 * z.rank + 1) * z.h}, at::kDouble), .rank = z.rank, .has_gate = true};
}

TEST(HeadMap, IsTheSumOfItsTerms) {
  for (const Sizes& z : {Sizes{1, 1, 1, 1, 1, 1}, Sizes{2, 6, 1, 3, 5, 2}, Sizes{2, 6, 3, 4, 2, 1}}) {
    at::manual_seed(1);
    const at::Tensor a = at::randn({z.b, z.t, z.h, z.s}, at::kDouble).transpose(1, 2);  // strided
    HeadMap map{.n_groups = z.groups, .skip = true, .fixed = {}, .query = {}, .key = {}};
    EXPECT_TRUE(at::equal(apply_head_map(map, a), a));
    map.fixed = at::randn({z.groups, z.h / z.groups, z.h / z.groups}, at::kDouble);
    EXPECT_LE(relative_error(apply_head_map(map, a), by_hand(map, a.contiguous(), z)), 1e-14);
    map.skip = false;
    map.query = random_side(z, z.t);
    map.key = random_side(z, z.s);
    EXPECT_LE(relative_error(apply_head_map(map, a), by_hand(map, a.contiguous(), z)), 1e-14);
    map.query = {};
    map.fixed.reset();
    EXPECT_LE(relative_error(apply_head_map(map, a), by_hand(map, a.contiguous(), z)), 1e-14);
  }
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

// The decode path and the differentiable implementation give the same values.
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

}  // namespace head_map_test
}  // namespace headroom::ops
