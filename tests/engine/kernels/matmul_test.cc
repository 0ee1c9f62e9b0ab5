// Tests matrix multiplication, transposition and conversion with every instruction set of this CPU.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "engine/kernels/cpu/matmul/gemv.h"
#include "engine/kernels/cpu/matmul/tile_product.h"
#include "kernel_testing.h"

namespace headroom::kernels::matmul_test {

using testing::kSizes;
using testing::on_every_target;

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
            // Each element sums k + 1 products of size ~1.
            EXPECT_LE((c.narrow(1, 0, n) - expected).abs().max().item<double>(), 1e-6 * static_cast<double>(k + 3));
            EXPECT_TRUE(at::equal(c.select(1, n), beyond)) << "column beyond was written";
          }
        }
      }
    }
  });
  tile_product_done();
}

// Returns NaNs, to detect elements that are not written.
std::vector<BFloat16> nan_filled(std::int64_t n) {
  return std::vector<BFloat16>(static_cast<std::size_t>(n), BFloat16(std::numeric_limits<float>::quiet_NaN()));
}

void expect_pairs_product(std::int64_t m, std::int64_t n, std::int64_t k, bool add) {
  const std::int64_t sum = padded_depth(k);
  const at::Tensor a = at::randn({m, k + 1}), b = at::randn({k, n + 3}).to(at::kBFloat16), c = at::randn({m, n + 1});
  std::vector<BFloat16> left = nan_filled(m * sum), right = nan_filled(sum * n), other = nan_filled(sum * n);
  pad_rows({a.const_data_ptr<float>(), k + 1}, m, k, left.data());
  pack_pairs({b.const_data_ptr<BFloat16>(), n + 3}, k, n, {right.data(), n});
  const at::Tensor columns = b.t().contiguous();
  pack_pairs_transposed({columns.const_data_ptr<BFloat16>(), k}, k, n, other.data());
  const std::size_t bytes = right.size() * sizeof(BFloat16);
  EXPECT_EQ(std::memcmp(right.data(), other.data(), bytes), 0) << "pack_pairs_transposed, k " << k << " n " << n;
  const at::Tensor numbers = b.to(at::kFloat);
  pack_pairs({numbers.const_data_ptr<float>(), n + 3}, k, n, {other.data(), n});
  EXPECT_EQ(std::memcmp(right.data(), other.data(), bytes), 0) << "pack_pairs of float32, k " << k << " n " << n;
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

TEST(TileProduct, PairsOfScaledRows) {
  at::manual_seed(6);
  on_every_target([&] {
    for (const std::int64_t n : {1, 7, 15, 16, 17, 76, 412}) {
      const at::Tensor a = at::randn({n}).to(at::kBFloat16), b = at::randn({n}).to(at::kBFloat16);
      for (const auto& [low, high] : {std::pair(1.0F, 1.0F), std::pair(0.3F, -1.7F), std::pair(1.0F, 0.1F)}) {
        for (const bool both : {true, false}) {
          at::Tensor to = at::full({n + 1, 2}, 9.0F, at::kBFloat16);
          pack_row_pair({a.const_data_ptr<BFloat16>(), low}, {both ? b.const_data_ptr<BFloat16>() : nullptr, high}, n,
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
        const std::int64_t sum = padded_depth(rows);
        std::vector<BFloat16> to = nan_filled(sum * columns), work = nan_filled(sum * columns);
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

// Expects the error of sums of n products of size ~1. In bfloat16, the sums are also rounded to 8 bits.
void expect_sums(const at::Tensor& got, const at::Tensor& exact, std::int64_t n, const std::string& what) {
  const double rounding = got.scalar_type() == at::kBFloat16 ? exact.abs().max().item<double>() / 256 : 0.0;
  EXPECT_LE((got.to(at::kDouble) - exact).abs().max().item<double>(), 1e-6 * static_cast<double>(n + 3) + rounding)
      << what;
}

template <class T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;

template <class T>
void expect_gemv(std::int64_t count, std::int64_t n, std::int64_t m) {
  const at::Tensor x = at::randn({count, n + 1}), w = at::randn({n, m + 3}).to(kType<T>), y = at::full({count, m}, NAN);
  const at::Tensor turned = w.t().contiguous(), other = at::full({count, m}, NAN);
  const GemvInput in{x.const_data_ptr<float>(), count, n, n + 1};
  gemv(in, {w.const_data_ptr<T>(), m + 3}, 0, m, {y.mutable_data_ptr<float>(), m});
  gemv_transposed(in, {turned.const_data_ptr<T>(), n}, 0, m, {other.mutable_data_ptr<float>(), m});
  const at::Tensor exact = x.narrow(1, 0, n).to(at::kDouble).mm(w.narrow(1, 0, m).to(at::kDouble));
  const std::string what = fmt::format("{}x{}x{}", count, n, m);
  expect_sums(y, exact, n, what);
  expect_sums(other, exact, n, what + " transposed");
  for (std::int64_t r = 0; r < count; ++r) {  // batch-invariant
    const at::Tensor alone = at::empty({m});
    gemv(in.data + r * (n + 1), n, {w.const_data_ptr<T>(), m + 3}, m, alone.mutable_data_ptr<float>());
    EXPECT_TRUE(alone.equal(y[r])) << what;
  }
}

TEST(Gemv, EqualsTheLibraryProductAndIsBatchInvariant) {
  at::manual_seed(7);
  on_every_target([] {
    for (const std::int64_t count : {1, 3, 13}) {
      for (const std::int64_t n : {1, 41}) {
        for (const std::int64_t m : {1, 16, 67, 130}) {
          expect_gemv<float>(count, n, m);
          expect_gemv<BFloat16>(count, n, m);
        }
      }
    }
  });
}

// Expects errors within the bound for sums of n exact products with two roundings per pair. |error| is at most (n + 5)
// 2^-24 sum_i |x_i w_i|, because adding the 16 lanes takes four more roundings.
void expect_bfloat16_sums(const at::Tensor& got, const at::Tensor& x, const at::Tensor& w, const std::string& what) {
  const at::Tensor wide_x = x.to(at::kDouble), wide_w = w.to(at::kDouble);
  const at::Tensor bound = wide_x.abs().mm(wide_w.abs()) * std::ldexp(static_cast<double>(x.size(1) + 5), -24);
  EXPECT_TRUE((got.to(at::kDouble) - wide_x.mm(wide_w)).abs().le(bound).all().item<bool>()) << what;
}

// Multiplies `most` vectors of n elements by an n x m matrix, alone and in batches of every size.
void expect_bfloat16_gemv(std::int64_t most, std::int64_t n, std::int64_t m) {
  at::Tensor x = at::full({most, n + 3}, NAN, at::kBFloat16), w = at::full({n + 1, m + 3}, NAN, at::kBFloat16),
             turned = at::full({m + 1, n + 5}, NAN, at::kBFloat16);
  x.narrow(1, 0, n).copy_(at::randn({most, n}));
  w.narrow(0, 0, n).narrow(1, 0, m).copy_(at::randn({n, m}));
  turned.narrow(0, 0, m).narrow(1, 0, n).copy_(w.narrow(0, 0, n).narrow(1, 0, m).t());
  std::vector<std::uint32_t> pairs(static_cast<std::size_t>((n + 1) / 2 * most));
  at::Tensor first, first_turned;
  for (std::int64_t count = most; count > 0; --count) {
    const std::string what = fmt::format("{}x{}x{}", count, n, m);
    const at::Tensor y = at::full({count, m + 1}, NAN), other = at::full({count, m + 1}, NAN);
    Bfloat16GemvInput in{x.const_data_ptr<BFloat16>(), count, n, n + 3};
    if (count % 2 == 0) {
      interleave_pairs(in, pairs.data());
      in.pairs = pairs.data();
    }
    gemv_bfloat16(in, {w.const_data_ptr<BFloat16>(), m + 3}, 0, m, {y.mutable_data_ptr<float>(), m + 1});
    gemv_bfloat16_transposed(in, {turned.const_data_ptr<BFloat16>(), n + 5}, 0, m,
                             {other.mutable_data_ptr<float>(), m + 1});
    EXPECT_TRUE(y.select(1, m).isnan().all().item<bool>() && other.select(1, m).isnan().all().item<bool>())
        << what << ": column beyond was written";
    const at::Tensor got = y.narrow(1, 0, m), got_turned = other.narrow(1, 0, m);
    if (count == most) {
      first = got;
      first_turned = got_turned;
      const at::Tensor values = x.narrow(1, 0, n), matrix = w.narrow(0, 0, n).narrow(1, 0, m);
      expect_bfloat16_sums(got, values, matrix, what);
      expect_bfloat16_sums(got_turned, values, matrix, what + " transposed");
    }
    EXPECT_TRUE(got.equal(first.narrow(0, 0, count))) << what;
    EXPECT_TRUE(got_turned.equal(first_turned.narrow(0, 0, count))) << what << " transposed";
  }
}

TEST(Gemv, OfBfloat16PairsIsExactToRoundingAndBatchInvariant) {
  if (!has_bfloat16_gemv()) {
    GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  }
  at::manual_seed(8);
  for (const std::int64_t n : {1, 2, 33, 64, 205}) {
    for (const std::int64_t m : {1, 15, 16, 32, 45, 130}) {
      expect_bfloat16_gemv(16, n, m);
    }
  }
}

TEST(Transpose, SwapsRowsAndColumns) {
  at::manual_seed(10);
  on_every_target([] {
    for (const std::int64_t rows : kSizes) {
      for (const std::int64_t columns : {1, 3, 4, 5, 16, 35}) {
        const at::Tensor from = at::randn({rows, columns + 1}), to = at::full({columns, rows + 2}, 9.0F);
        transpose({from.const_data_ptr<float>(), columns + 1}, rows, columns, {to.mutable_data_ptr<float>(), rows + 2});
        EXPECT_TRUE(to.narrow(1, 0, rows).equal(from.narrow(1, 0, columns).t())) << rows << "x" << columns;
        EXPECT_TRUE(to.narrow(1, rows, 2).eq(9.0F).all().item<bool>()) << rows << "x" << columns;
      }
    }
  });
}

// The bits cover every kind of float32: ties, subnormal numbers, overflow to infinity, NaN.
TEST(Bfloat16, RoundsToNearestEvenAndWidensExactly) {
  at::manual_seed(11);
  on_every_target([] {
    const at::Tensor bits = at::randint(std::numeric_limits<std::int32_t>::min(),
                                        std::numeric_limits<std::int32_t>::max(), {4099}, at::kInt);
    bits.narrow(0, 0, 1024).bitwise_and_(-65536).bitwise_or_(0x8000);  // ties
    const at::Tensor x = bits.view(at::kFloat), wide = at::empty_like(x);
    const at::Tensor half = at::empty({4099}, at::kBFloat16), expected = x.to(at::kBFloat16);
    round_to_bfloat16(x.const_data_ptr<float>(), 4099, half.mutable_data_ptr<BFloat16>());
    EXPECT_TRUE(half.isnan().equal(x.isnan()));
    EXPECT_TRUE(half.nan_to_num().equal(expected.nan_to_num()));
    widen_to_float32(half.const_data_ptr<BFloat16>(), 4099, wide.mutable_data_ptr<float>());
    EXPECT_TRUE(wide.nan_to_num().equal(half.to(at::kFloat).nan_to_num()));
  });
}

}  // namespace headroom::kernels::matmul_test
