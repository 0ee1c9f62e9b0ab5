// Every kernel on every instruction set that this CPU has, over sizes around the vectors' widths.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "engine/kernels/cpu/attention/softmax_rows.h"
#include "engine/kernels/cpu/products/tile_product.h"

namespace headroom::kernels {
namespace rows_test {

// Runs `body` once with each instruction set alone enabled.
template <class Body>
void on_every_target(const Body& body) {
  std::int64_t left = hwy::SupportedTargets();
  while (left != 0) {
    const std::int64_t target = left & -left;
    left &= ~target;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(softmax_rows_target());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

at::Tensor guarded(const at::Tensor& values) {  // NaN on both sides: reading or writing beyond shows
  const at::Tensor wide = at::full({values.numel() + 32}, std::numeric_limits<float>::quiet_NaN());
  wide.narrow(0, 16, values.numel()).copy_(values);
  return wide;
}

float* inner(const at::Tensor& wide) {
  return wide.mutable_data_ptr<float>() + 16;
}

void expect_guard_untouched(const at::Tensor& wide, const char* what) {
  const std::int64_t n = wide.numel() - 32;
  EXPECT_TRUE(wide.narrow(0, 0, 16).isnan().all().item<bool>()) << what;
  EXPECT_TRUE(wide.narrow(0, 16 + n, 16).isnan().all().item<bool>()) << what;
}

const std::vector<std::int64_t> kSizes = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 67, 130};

// Scores scaled and, if asked for, with positions and a bias of their own.
void expect_softmax(std::int64_t n, float scale, bool with_terms) {
  const std::int64_t low = n / 5, high = n - n / 7;
  const at::Tensor s = at::randn({n}), d_p = at::randn({n});
  const at::Tensor position = with_terms ? at::randn({n}) : at::zeros({n});
  at::Tensor bias = at::zeros({n});
  if (with_terms && high - low > 2) {
    bias[low + 1] = -std::numeric_limits<float>::infinity();
  }
  const at::Tensor scores = guarded(s), positions = guarded(position), biases = guarded(bias), grads = guarded(d_p);
  const ScoreRow row{
      low, high, n, scale, with_terms ? inner(positions) : nullptr, with_terms ? inner(biases) : nullptr};
  float sum = 0.0F;
  const float log_sum = exp_row(row, inner(scores), &sum);

  const at::Tensor exact = ((s + position).to(at::kDouble) * scale + bias).narrow(0, low, high - low);
  EXPECT_NEAR(log_sum, exact.logsumexp(at::IntArrayRef{0}).item<double>(), 2e-6);
  const at::Tensor p = at::zeros({n}, at::kDouble);
  p.narrow(0, low, high - low).copy_(exact.softmax(0));
  const at::Tensor got = scores.narrow(0, 16, n).to(at::kDouble) / sum;
  EXPECT_LE((got - p).abs().max().item<double>(), 1e-6) << n;

  const at::Tensor again = guarded(s), weights = guarded(s);
  exp_row_backward(row, log_sum, 0.21F, inner(again), inner(grads));
  probability_row(row, log_sum, inner(weights));
  const at::Tensor expected = p * (d_p.to(at::kDouble) - 0.21) * scale;
  EXPECT_LE((again.narrow(0, 16, n).to(at::kDouble) - p).abs().max().item<double>(), 2e-6) << n;
  EXPECT_TRUE(weights.narrow(0, 16, n).equal(again.narrow(0, 16, n))) << n;
  EXPECT_LE((grads.narrow(0, 16, n).to(at::kDouble) - expected).abs().max().item<double>(), 4e-6) << n;
  for (const at::Tensor& t : {scores, again, grads, weights}) {
    expect_guard_untouched(t, "row");
  }
}

TEST(SoftmaxRows, ForwardAndBackwardAreTheirFormulas) {
  at::manual_seed(1);
  on_every_target([] {
    for (const std::int64_t n : kSizes) {
      for (const float scale : {0.37F, 1.0F, -0.37F}) {
        expect_softmax(n, scale, true);
        expect_softmax(n, scale, false);
      }
    }
  });
}

// Its polynomial is off by 0.05 units in the last place at most; rounding on the way makes 1.3 of it.
TEST(SoftmaxRows, ExponentialsAreRightToTheLastBitButOne) {
  on_every_target([] {
    const at::Tensor x = at::arange(-87.0, -1.0, 1.0 / 1024, at::kFloat).add_(at::rand({1}));
    const at::Tensor exact = x.to(at::kDouble).exp(), got = x.clone();
    const std::int64_t n = x.numel();
    probability_row({0, n, n, 1.0F, nullptr, nullptr}, 0.0F, got.mutable_data_ptr<float>());
    const at::Tensor unit = exact.log2().floor().sub(23).exp2();
    EXPECT_LE(((got.to(at::kDouble) - exact) / unit).abs().max().item<double>(), 1.35);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    float none[3] = {-87.1F, -1e30F, -kInfinity};
    probability_row({0, 3, 3, 1.0F, nullptr, nullptr}, 0.0F, none);
    EXPECT_TRUE(none[0] == 0.0F && none[1] == 0.0F && none[2] == 0.0F);
  });
}

// A step between neighbours of these scores is 2^26 and more: where their products with the scale are rounded
// differently, the difference is beyond any exponential. Weights stay weights.
TEST(SoftmaxRows, HugeScoresHaveWeightsAllTheSame) {
  at::manual_seed(2);
  on_every_target([] {
    for (const std::int64_t n : kSizes) {
      const at::Tensor s = at::randn({n}).mul_(1e15), scores = guarded(s), again = guarded(s), d_p = guarded(s / 1e15);
      const ScoreRow row{0, n, n, 0.37F, nullptr, nullptr};
      float sum = 0.0F;
      const float log_sum = exp_row(row, inner(scores), &sum);
      EXPECT_EQ(sum, 1.0F);
      EXPECT_EQ(inner(scores)[s.argmax().item<std::int64_t>()], 1.0F);
      exp_row_backward(row, log_sum, 0.1F, inner(again), inner(d_p));
      const at::Tensor p = again.narrow(0, 16, n);
      EXPECT_TRUE((p >= 0).all().item<bool>() && (p <= 1).all().item<bool>()) << n;
      EXPECT_TRUE(d_p.narrow(0, 16, n).isfinite().all().item<bool>()) << n;
    }
  });
}

TEST(SoftmaxRows, ABlindRowIsAllZero) {
  on_every_target([] {
    float scores[3] = {1, 2, 3}, sum = 1;
    const float bias[3] = {-INFINITY, -INFINITY, -INFINITY};
    const ScoreRow row{0, 3, 3, 1.0F, nullptr, bias};
    const float log_sum = exp_row(row, scores, &sum);
    EXPECT_EQ(sum, 0.0F);
    EXPECT_EQ(scores[0] + scores[1] + scores[2], 0.0F);
    float again[3] = {1, 2, 3}, grads[3] = {1, 1, 1};
    exp_row_backward(row, log_sum, 0.0F, again, grads);
    EXPECT_EQ(again[0] + again[1] + again[2], 0.0F);
    EXPECT_EQ(grads[0] + grads[1] + grads[2], 0.0F);
  });
}

TEST(SoftmaxRows, CrossEntropyAndItsGradient) {
  at::manual_seed(2);
  on_every_target([&] {
    for (const std::int64_t n : kSizes) {
      const at::Tensor logits = at::randn({n}) * 5, bias = at::randn({n});
      const at::Tensor row = guarded(logits), biases = guarded(bias);
      const std::int64_t target = n / 2;
      const float loss = cross_entropy_row(inner(row), inner(biases), n, target, 0.5F);
      const at::Tensor exact = (logits + bias).to(at::kDouble).log_softmax(0);
      EXPECT_NEAR(loss, -exact[target].item<double>(), 4e-6);
      at::Tensor expected = exact.exp();
      expected[target] -= 1.0;
      EXPECT_LE((row.narrow(0, 16, n).to(at::kDouble) - 0.5 * expected).abs().max().item<double>(), 1e-6) << n;
      expect_guard_untouched(row, "logits");
      EXPECT_EQ(cross_entropy_row(inner(row), nullptr, n, -1, 1.0F), 0.0F);
      EXPECT_EQ(row.narrow(0, 16, n).abs().max().item<float>(), 0.0F);
    }
  });
}

TEST(TileProduct, EqualsTheLibraryProduct) {
  at::manual_seed(3);
  on_every_target([&] {
    for (const std::int64_t m : {1, 3, 4, 5, 64}) {
      for (const std::int64_t n : kSizes) {
        for (const std::int64_t k : {1, 2, 41}) {
          for (const bool add : {false, true}) {
            const at::Tensor a = at::randn({m, k + 3}), b = at::randn({k, n + 2}), c = at::randn({m, n + 1});
            const at::Tensor product = a.narrow(1, 0, k).to(at::kDouble).mm(b.narrow(1, 0, n).to(at::kDouble));
            const at::Tensor expected = add ? product + c.narrow(1, 0, n) : product;
            const at::Tensor beyond = c.select(1, n).clone();
            tile_product({m, n, k, k + 3, n + 2, n + 1, add}, a.const_data_ptr<float>(), b.const_data_ptr<float>(),
                         c.mutable_data_ptr<float>());
            // Sums of k + 1 products of size ~1.
            EXPECT_LE((c.narrow(1, 0, n) - expected).abs().max().item<double>(), 1e-6 * static_cast<double>(k + 3));
            EXPECT_TRUE(at::equal(c.select(1, n), beyond)) << "column beyond was written";
          }
        }
      }
    }
  });
  tile_product_done();
}

// Filled with NaN, which shows where an operand is not.
std::vector<BFloat16> room_for(std::int64_t n) {
  return std::vector<BFloat16>(static_cast<std::size_t>(n), BFloat16(std::numeric_limits<float>::quiet_NaN()));
}

void expect_pairs_product(std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  const std::int64_t sum = sum_length(k);
  const at::Tensor a = at::randn({m, k + 1}), b = at::randn({k, n + 3}).to(at::kBFloat16), c = at::randn({m, n + 1});
  std::vector<BFloat16> left = room_for(m * sum), right = room_for(sum * n), other = room_for(sum * n);
  fill_up_rows(Strided<const float>{a.const_data_ptr<float>(), k + 1}, m, k, left.data());
  pair_rows(Strided<const BFloat16>{b.const_data_ptr<BFloat16>(), n + 3}, k, n, {right.data(), n});
  const at::Tensor columns = b.t().contiguous();
  pair_columns({columns.const_data_ptr<BFloat16>(), k}, k, n, other.data());
  const std::size_t bytes = right.size() * sizeof(BFloat16);
  EXPECT_EQ(std::memcmp(right.data(), other.data(), bytes), 0) << "pair_columns, k " << k << " n " << n;
  const at::Tensor numbers = b.to(at::kFloat);
  pair_rows(Strided<const float>{numbers.const_data_ptr<float>(), n + 3}, k, n, {other.data(), n});
  EXPECT_EQ(std::memcmp(right.data(), other.data(), bytes), 0) << "pair_rows of float32, k " << k << " n " << n;
  const at::Tensor product = a.narrow(1, 0, k).to(at::kBFloat16).to(at::kDouble).mm(b.narrow(1, 0, n).to(at::kDouble));
  const at::Tensor expected = add ? product + c.narrow(1, 0, n) : product, beyond = c.select(1, n).clone();
  tile_product({m, n, sum, sum, n, n + 1, add}, left.data(), right.data(), c.mutable_data_ptr<float>());
  EXPECT_LE((c.narrow(1, 0, n) - expected).abs().max().item<double>(), 1e-6 * static_cast<double>(k + 3))
      << m << "x" << n << "x" << k;
  EXPECT_TRUE(at::equal(c.select(1, n), beyond)) << "column beyond was written";
}

TEST(TileProduct, OfPairsEqualsTheProductOfRoundedNumbers) {
  at::manual_seed(4);
  on_every_target([&] {
    for (const std::int64_t m : {1, 3, 16, 37, 64}) {
      for (const std::int64_t n : {1, 15, 16, 17, 76, 156}) {
        for (const std::int64_t k : {1, 2, 14, 32, 33, 41, 76, 96, 205, 412}) {
          expect_pairs_product(m, n, k, (m + n + k) % 2 == 0);
        }
      }
    }
  });
  tile_product_done();
}

// Two rows from anywhere, each times its number, rounded once; a row that is not there is zeros, and nothing beyond the
// rows is written.
TEST(TileProduct, PairsOfRowsTimesNumbers) {
  at::manual_seed(6);
  on_every_target([&] {
    for (const std::int64_t n : {1, 7, 15, 16, 17, 76, 412}) {
      const at::Tensor a = at::randn({n}).to(at::kBFloat16), b = at::randn({n}).to(at::kBFloat16);
      for (const auto& [low, high] : {std::pair(1.0F, 1.0F), std::pair(0.3F, -1.7F), std::pair(1.0F, 0.1F)}) {
        for (const bool both : {true, false}) {
          at::Tensor to = at::full({n + 1, 2}, 9.0F, at::kBFloat16);
          pair_two_rows({a.const_data_ptr<BFloat16>(), low}, {both ? b.const_data_ptr<BFloat16>() : nullptr, high}, n,
                        to.mutable_data_ptr<BFloat16>());
          const auto times = [](const at::Tensor& row, float factor) {
            return (row.to(at::kFloat) * factor).to(at::kBFloat16);
          };
          const at::Tensor second = both ? times(b, high) : at::zeros_like(b);
          EXPECT_TRUE(at::equal(to.narrow(0, 0, n), at::stack({times(a, low), second}, 1))) << n;
          EXPECT_TRUE(at::equal(to[n], at::full({2}, 9.0F, at::kBFloat16))) << n;
        }
      }
    }
  });
}

TEST(TileProduct, RowsTurnIntoColumnsOfPairs) {
  at::manual_seed(5);
  on_every_target([&] {
    for (const std::int64_t rows : {1, 2, 17, 33, 80, 255}) {
      for (const std::int64_t columns : {1, 7, 16, 76}) {
        const at::Tensor from = at::randn({rows, columns + 1}).to(at::kBFloat16);
        const std::int64_t sum = sum_length(rows);
        std::vector<BFloat16> to = room_for(sum * columns), work = room_for(sum * columns);
        transpose({from.const_data_ptr<BFloat16>(), columns + 1}, rows, columns, to.data(), work.data());
        const at::Tensor got = at::from_blob(to.data(), {columns, sum}, at::kBFloat16);
        EXPECT_TRUE(at::equal(got.narrow(1, 0, rows), from.narrow(1, 0, columns).t())) << rows << "x" << columns;
        EXPECT_EQ(got.narrow(1, rows, sum - rows).abs().sum().item<float>(), 0.0F) << rows << "x" << columns;
      }
    }
  });
}

TEST(TileProduct, SumsOfNothingAreZero) {
  for (const bool add : {false, true}) {
    std::vector<float> c(6, 2.0F);
    tile_product({2, 2, 0, 1, 2, 3, add}, c.data(), c.data(), c.data());
    EXPECT_EQ(c, (add ? std::vector<float>(6, 2.0F) : std::vector<float>{0, 0, 2, 0, 0, 2}));
  }
}

}  // namespace rows_test
}  // namespace headroom::kernels
