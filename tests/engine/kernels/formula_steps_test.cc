// Tests the operations of formulas and their gradients with every instruction set of this CPU.
#include "engine/kernels/cpu/attention/formula_steps.h"

#include <array>
#include <cmath>
#include <numeric>

#include "kernel_testing.h"

namespace headroom::kernels::formula_steps_test {

using formula::Node;
using formula::Op;
using testing::on_every_target;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// The values include zeros, both signs, poles, half-integers, and magnitudes where exp() or a square overflows.
constexpr std::array<float, 32> kValues = {0.0F,   -0.0F,   1.0F,   -1.0F,   0.5F,  -0.5F,  1e-6F, -1e-6F,
                                           2.0F,   3.0F,    -3.0F,  7.0F,    12.5F, -12.5F, 88.0F, -88.0F,
                                           104.5F, -104.5F, 300.0F, -300.0F, 1e20F, -1e20F, 0.1F,  -0.1F,
                                           1e-3F,  255.0F,  256.0F, 1024.0F, -7.0F, 0.9F,   -0.9F, 20.0F};

void expect_near(const Node& node, float got, float a, float b, float c) {
  const double expected = formula::apply(node, a, b, c);
  const auto rounded = static_cast<float>(expected);
  if (std::isnan(expected) || std::isinf(rounded)) {
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : got == rounded)
        << name(node.op) << " of " << a << ", " << b << ": " << got << ", expected " << rounded;
  } else {
    const double amplified = node.op == Op::power ? 100.0 : 1.0;  // exponent * log(a)
    EXPECT_LE(std::abs(got - expected), amplified * 1e-6 * std::abs(expected) + 1e-30)
        << name(node.op) << " of " << a << ", " << b << ": " << got << ", expected " << rounded;
  }
}

void expect_operation(const Node& node) {
  std::array<float, 32> a = kValues, b = kValues, c = kValues, to{};
  for (std::size_t shift = 0; shift < kValues.size(); ++shift) {
    std::rotate(b.begin(), b.begin() + 1, b.end());
    const std::array<FormulaValue, 4> values = {{{a.data(), 1}, {b.data(), 1}, {c.data(), 1}, {to.data(), 1}}};
    run_formula({{node.op, 3, node.a, node.b, node.c, static_cast<float>(node.constant), 0, false}}, values.data(),
                nullptr, 32);
    for (std::size_t k = 0; k < kValues.size(); ++k) {
      expect_near(node, to[k], a[k], b[k], c[k]);
    }
  }
}

TEST(FormulaSteps, OperationsEqualThoseOnDoubles) {
  on_every_target([] {
    for (int op = static_cast<int>(Op::neg); op <= static_cast<int>(Op::logical_not); ++op) {
      expect_operation({static_cast<Op>(op), 0});
    }
    for (const double exponent : {0.0, 2.0, 3.0, -1.0, 0.5, 1.7, -2.5}) {
      expect_operation({Op::power, 0, -1, -1, exponent});
    }
    for (int op = static_cast<int>(Op::add); op <= static_cast<int>(Op::logical_or); ++op) {
      if (static_cast<Op>(op) != Op::remainder && static_cast<Op>(op) != Op::floor_div) {
        expect_operation({static_cast<Op>(op), 0, 1});
      }
    }
    expect_operation({Op::where, 0, 1, 2});
  });
}

TEST(FormulaSteps, DividesPositionsExactly) {
  on_every_target([] {
    constexpr std::int64_t kPositions = 4096;
    Buffer position(kPositions), quotient(kPositions), remainder(kPositions), divisor(kFormulaLanes);
    std::iota(position.data(), position.data() + kPositions, -100.0F);
    for (const int by : {1, 3, 7, 64, 100}) {
      divisor.fill(static_cast<float>(by));
      const std::array<FormulaValue, 4> values = {
          {{position.data(), 1}, {divisor.data(), 0}, {quotient.data(), 1}, {remainder.data(), 1}}};
      run_formula({{Op::floor_div, 2, 0, 1, -1, 0.0F, 0, false}, {Op::remainder, 3, 0, 1, -1, 0.0F, 0, false}},
                  values.data(), nullptr, kPositions);
      for (int k = 0; k < kPositions; ++k) {
        const int at = k - 100, rest = (at % by + by) % by;
        ASSERT_EQ(quotient.data()[k], static_cast<float>((at - rest) / by)) << at << " // " << by;
        ASSERT_EQ(remainder.data()[k], static_cast<float>(rest)) << at << " % " << by;
      }
    }
  });
}

TEST(FormulaSteps, TablesTakeTheNearestEntry) {
  const std::array<float, 3> table = {10.0F, 20.0F, 30.0F};
  std::array<float, 16> index = {0.0F, 1.0F, 2.0F, 3.0F, 1e9F, kInfinity, -1.0F, -1e9F, -kInfinity, 0.9F, 1.9F, 2.9F};
  index[12] = std::numeric_limits<float>::quiet_NaN();
  const std::array<float, 16> expected = {10, 20, 30, 30, 30, 30, 10, 10, 10, 10, 20, 30, 10, 10, 10, 10};
  const FormulaTable tables = {table.data(), 3};
  on_every_target([&] {
    std::array<float, 16> to{};
    const std::array<FormulaValue, 2> values = {{{index.data(), 1}, {to.data(), 1}}};
    run_formula({{Op::table, 1, 0, -1, -1, 0.0F, 0, false}}, values.data(), &tables, 16);
    EXPECT_EQ(to, expected);
    for (std::size_t k = 0; k < 16; ++k) {
      EXPECT_EQ(table.at(static_cast<std::size_t>(formula_index(index[k], 3))), expected[k]);
    }
  });
}

TEST(FormulaSteps, HiddenPairsHaveNoGradient) {
  on_every_target([] {
    std::array<float, 16> g{}, x{}, sums{};
    x.fill(kInfinity);
    g[3] = 2.0F;
    x[3] = 5.0F;
    EXPECT_EQ(formula_dot(g.data(), {x.data(), 1}, 16), 10.0F);
    formula_add(g.data(), {x.data(), 1}, 16, sums.data());
    formula_multiply({x.data(), 1}, 0.5F, 16, g.data());
    for (std::size_t k = 0; k < 16; ++k) {
      EXPECT_EQ(sums[k], k == 3 ? 10.0F : 0.0F);
      EXPECT_EQ(g[k], k == 3 ? 5.0F : 0.0F);
    }
  });
}

}  // namespace headroom::kernels::formula_steps_test
