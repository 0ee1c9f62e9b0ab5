#include <cmath>

#include "engine/ops/head_map/cases.h"
#include "gradients.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops {
namespace head_map_factors_test {

using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

// By the definition, one token, stage, group and component at a time.
at::Tensor by_hand(const FactorsCase& z, const std::vector<at::Tensor>& leaves) {
  const HeadMapWeights weights = z.weights(leaves);
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < z.rows; ++i) {
    std::vector<at::Tensor> parts;
    const at::Tensor x = leaves[0][i];
    for (std::size_t stage = 0; stage < static_cast<std::size_t>(z.stages); ++stage) {
      for (std::int64_t part = 0; z.low_rank && part < 2; ++part) {
        for (std::int64_t r = 0; r < z.rank; ++r) {
          for (std::int64_t c = 0; c < z.groups; ++c) {
            const at::Tensor a = weights.w1[stage][c].t().mv(x);
            const at::Tensor h = z.tanh_gelu
                                     ? a * 0.5 * (1.0 + (std::sqrt(2.0 / M_PI) * (a + 0.044715 * a.pow(3))).tanh())
                                     : a * 0.5 * (1.0 + (a / std::sqrt(2.0)).erf());
            const at::Tensor f = weights.w2[stage][c].select(1, part).select(1, r).t().mv(h);
            parts.push_back(part == 0 ? f / (f.square().mean() + 1e-6).sqrt() : f);
          }
        }
      }
      if (z.gate) {
        parts.push_back(weights.gate[stage].t().mv(x).tanh());
      }
    }
    rows.push_back(at::cat(parts));
  }
  return at::stack(rows);
}

at::Tensor factors(const FactorsCase& z, const std::vector<at::Tensor>& leaves) {
  return head_map_factors(leaves[0], z.weights(leaves));
}

TEST(HeadMapFactors, AreTheirDefinitionsWithTheirGradients) {
  for (const FactorsCase& z : factors_cases()) {
    if (z.rows > 0) {
      at::manual_seed(7);
      const std::vector<at::Tensor> leaves = z.leaves({at::kDouble});
      EXPECT_LE(relative_error(factors(z, leaves), by_hand(z, leaves)), 1e-14) << z.name();
      expect_close(evaluate([&](const auto& x) { return factors(z, x); }, leaves),
                   evaluate([&](const auto& x) { return by_hand(z, x); }, leaves), 1e-12, z.name());
    }
  }
}

// Wanting a gradient or not, few rows or many, are two ways to the same numbers.
TEST(HeadMapFactors, WaysMeet) {
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

TEST(HeadMapFactors, ThreadsChangeNothing) {
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

}  // namespace head_map_factors_test
}  // namespace headroom::ops
