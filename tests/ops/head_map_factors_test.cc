#include "headroom/ops/head_map_factors.h"

#include <cmath>

#include "gradients.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops {
namespace head_map_factors_test {

using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

struct Sizes {
  std::int64_t rows, d, stages, groups, inner, rank, m;
  bool low_rank = true, gate = true, tanh_gelu = false;
};

const std::vector<Sizes> kSizes = {{1, 1, 1, 1, 1, 1, 1},
                                   {1, 19, 2, 1, 12, 2, 3},
                                   {7, 33, 2, 3, 5, 1, 2, true, true, true},
                                   {16, 24, 1, 2, 17, 3, 5, true, false},
                                   {5, 31, 2, 1, 1, 1, 7, false, true},
                                   {0, 3, 2, 1, 4, 1, 2}};

struct Inputs {
  at::Tensor x;
  HeadMapWeights weights;

  std::vector<at::Tensor> all() const {
    std::vector<at::Tensor> tensors = {x};
    for (const auto* list : {&weights.w1, &weights.w2, &weights.gate}) {
      tensors.insert(tensors.end(), list->begin(), list->end());
    }
    return tensors;
  }
  // The same call of other tensors, in the order of all().
  Inputs of(const std::vector<at::Tensor>& tensors) const {
    Inputs other{tensors[0], {.tanh_gelu = weights.tanh_gelu}};
    auto next = tensors.begin() + 1;
    const auto take = [&](std::size_t n) {
      const std::vector<at::Tensor> list(next, next + static_cast<std::ptrdiff_t>(n));
      next += static_cast<std::ptrdiff_t>(n);
      return list;
    };
    other.weights.w1 = take(weights.w1.size());
    other.weights.w2 = take(weights.w2.size());
    other.weights.gate = take(weights.gate.size());
    return other;
  }
  Inputs to(at::ScalarType type) const {
    std::vector<at::Tensor> converted;
    for (const at::Tensor& t : all()) {
      converted.push_back(t.to(type));
    }
    return of(converted);
  }
};

// Numbers that `type` has exactly, some of them strided.
Inputs random_inputs(const Sizes& z, at::ScalarType type) {
  at::manual_seed(7);
  const auto random = [&](at::IntArrayRef shape) { return at::randn(shape).to(type); };
  Inputs in{random({z.d, z.rows}).t(), {.tanh_gelu = z.tanh_gelu}};
  for (std::int64_t stage = 0; stage < z.stages; ++stage) {
    if (z.low_rank) {
      in.weights.w1.push_back(random({z.d, z.groups, z.inner}).transpose(0, 1));
      in.weights.w2.push_back(random({z.groups, z.inner, 2, z.rank, z.m}));
    }
    if (z.gate) {
      in.weights.gate.push_back(random({z.groups * z.m, z.d}).t());
    }
  }
  return in;
}

// By the definition, one token, stage, group and component at a time.
at::Tensor by_hand(const Inputs& in, const Sizes& z) {
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < z.rows; ++i) {
    std::vector<at::Tensor> parts;
    const at::Tensor x = in.x[i];
    for (std::size_t stage = 0; stage < static_cast<std::size_t>(z.stages); ++stage) {
      for (std::int64_t part = 0; z.low_rank && part < 2; ++part) {
        for (std::int64_t r = 0; r < z.rank; ++r) {
          for (std::int64_t c = 0; c < z.groups; ++c) {
            const at::Tensor a = in.weights.w1[stage][c].t().mv(x);
            const at::Tensor h = z.tanh_gelu
                                     ? a * 0.5 * (1.0 + (std::sqrt(2.0 / M_PI) * (a + 0.044715 * a.pow(3))).tanh())
                                     : a * 0.5 * (1.0 + (a / std::sqrt(2.0)).erf());
            const at::Tensor f = in.weights.w2[stage][c].select(1, part).select(1, r).t().mv(h);
            parts.push_back(part == 0 ? f / (f.square().mean() + 1e-6).sqrt() : f);
          }
        }
      }
      if (z.gate) {
        parts.push_back(in.weights.gate[stage].t().mv(x).tanh());
      }
    }
    rows.push_back(at::cat(parts));
  }
  return at::stack(rows);
}

TEST(HeadMapFactors, AreTheirDefinitions) {
  for (const Sizes& z : kSizes) {
    if (z.rows > 0) {
      const Inputs in = random_inputs(z, at::kDouble);
      EXPECT_LE(relative_error(head_map_factors(in.x, in.weights), by_hand(in, z)), 1e-14);
    }
  }
}

TEST(HeadMapFactors, HaveTheirDefinitionsGradients) {
  for (const Sizes& z : kSizes) {
    if (z.rows > 0) {
      const Inputs in = random_inputs(z, at::kDouble);
      const auto got = evaluate(
          [&](const std::vector<at::Tensor>& leaves) {
            const Inputs now = in.of(leaves);
            return head_map_factors(now.x, now.weights);
          },
          in.all());
      const auto expected =
          evaluate([&](const std::vector<at::Tensor>& leaves) { return by_hand(in.of(leaves), z); }, in.all());
      expect_close(got, expected, 1e-12, "factors");
    }
  }
}

// Wanting a gradient or not, few rows or many, are two ways to the same numbers.
TEST(HeadMapFactors, WaysMeet) {
  const Inputs in = random_inputs({17, 24, 2, 2, 8, 2, 3}, at::kFloat);
  const at::Tensor many = head_map_factors(in.x, in.weights), few = in.x.narrow(0, 1, 16);
  EXPECT_LE(relative_error(head_map_factors(few, in.weights), many.narrow(0, 1, 16)), 1e-5);
  const at::Tensor with_gradient = head_map_factors(few.detach().requires_grad_(true), in.weights);
  EXPECT_TRUE(with_gradient.requires_grad());
  EXPECT_LE(relative_error(with_gradient.detach(), many.narrow(0, 1, 16)), 1e-5);
}

// The sums of both products, one after the other, are in float32; u, which is of size 1, can make them larger where all
// of a group's numbers are small, which random ones are not. A bfloat16 result is rounded once.
TEST(HeadMapFactors, OfAFewRowsAreTheReferences) {
  for (const Sizes& z : kSizes) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const Inputs in = random_inputs(z, type), wide = in.to(at::kDouble);
      const at::NoGradGuard no_grad;
      const at::Tensor got = head_map_factors(in.x, in.weights);
      EXPECT_EQ(got.scalar_type(), type);
      const double sums = static_cast<double>(z.d + z.inner + z.m) * std::ldexp(1.0, -24) * 4.0;
      EXPECT_LE(relative_error(got, head_map_factors(wide.x, wide.weights)),
                sums + (type == at::kFloat ? 0.0 : std::ldexp(1.0, -8)));
      testing::with_threads([&](int /*threads*/) { EXPECT_TRUE(at::equal(head_map_factors(in.x, in.weights), got)); });
    }
  }
}

TEST(HeadMapFactors, AreRefused) {
  const Inputs in = random_inputs({17, 4, 2, 1, 3, 1, 2}, at::kFloat);
  EXPECT_THROW(head_map_factors(in.to(at::kDouble).x, in.to(at::kDouble).weights, Implementation::fused), MisuseError);
  const auto refused = [&](const char* what, const auto& change) {
    Inputs wrong = in;
    change(wrong);
    EXPECT_THROW(head_map_factors(wrong.x, wrong.weights), Error) << what;
  };
  refused("no weights", [](Inputs& w) { w.weights = {}; });
  refused("a stage without w2", [](Inputs& w) { w.weights.w2.pop_back(); });
  refused("a stage without gate", [](Inputs& w) { w.weights.gate.pop_back(); });
  refused("another width", [](Inputs& w) { w.x = w.x.narrow(1, 0, 3); });
  refused("another rank", [](Inputs& w) { w.weights.w2[1] = at::zeros({1, 3, 2, 2, 2}); });
  refused("too few axes", [](Inputs& w) { w.weights.w1[0] = at::zeros({4, 3}); });
  refused("no matrix", [](Inputs& w) { w.weights.gate[0] = at::zeros({4}); });
  refused("a gate for other heads", [](Inputs& w) { w.weights.gate[1] = at::zeros({4, 3}); });
}

}  // namespace head_map_factors_test
}  // namespace headroom::ops
