#include "engine/ops/linear/dense_matmul.h"

#include "gradients.h"

namespace headroom::ops::tile_matmul_test {

// Returns [rows, columns] in one of four layouts: contiguous, with gaps between rows, and the transposes of both.
at::Tensor matrix(std::int64_t rows, std::int64_t columns, int layout) {
  const bool transposed = layout >= 2;
  const std::int64_t outer = transposed ? columns : rows, inner = transposed ? rows : columns, gap = layout % 2 * 5;
  const at::Tensor all = at::randn({outer, inner + gap}).narrow(1, 0, inner);
  return transposed ? all.t() : all;
}

struct Size {
  std::int64_t m, k, n;
};

TEST(TileMatmul, EqualsTheProductInDoublePrecision) {
  at::manual_seed(1);
  for (const Size& size : {Size{32, 1, 1}, {33, 7, 130}, {64, 256, 256}, {65, 257, 259}, {150, 600, 17}}) {
    for (int layouts = 0; layouts < 16; ++layouts) {
      const at::Tensor a = matrix(size.m, size.k, layouts / 4), b = matrix(size.k, size.n, layouts % 4);
      ASSERT_TRUE(suits_tiles(a, b));
      for (const auto& bias :
           {std::optional<at::Tensor>(), std::optional(at::randn({2 * size.n}).slice(0, 0, {}, 2))}) {
        at::Tensor expected = a.to(at::kDouble).mm(b.to(at::kDouble)), sum = a.abs().mm(b.abs());
        if (bias) {
          expected = expected + *bias;
          sum = sum + bias->abs();
        }
        // Each of k products and the bias is rounded once.
        const double roundings = static_cast<double>(size.k + 1) * std::numeric_limits<float>::epsilon() / 2.0;
        const at::Tensor error = (tile_matmul(a, b, bias) - expected).abs();
        EXPECT_TRUE(error.le(sum.to(at::kDouble) * roundings).all().item<bool>())
            << size.m << "x" << size.k << "x" << size.n << ", layouts " << layouts;
      }
    }
  }
}

TEST(TileMatmul, BitsDependNeitherOnThreadsNorOnOtherRows) {
  at::manual_seed(2);
  const at::Tensor a = at::randn({200, 700}), b = at::randn({700, 300});
  const at::Tensor expected = tile_matmul(a, b, {});
  testing::with_threads([&](int threads) {
    EXPECT_TRUE(tile_matmul(a, b, {}).equal(expected)) << threads;
    EXPECT_TRUE(tile_matmul(a.narrow(0, 50, 40), b, {}).equal(expected.narrow(0, 50, 40))) << threads;
  });
}

TEST(TileMatmul, LeavesOtherOperandsToTheLibraries) {
  const at::Tensor a = at::ones({40, 8}), b = at::ones({8, 8});
  EXPECT_FALSE(suits_tiles(a.narrow(0, 0, 31), b));
  EXPECT_FALSE(suits_tiles(a.to(at::kBFloat16), b.to(at::kBFloat16)));
  EXPECT_FALSE(suits_tiles(at::ones({40, 1}).expand({40, 8}), b));
  EXPECT_FALSE(suits_tiles(at::ones({40, 16}).slice(1, 0, {}, 2), b));
  EXPECT_FALSE(suits_tiles(at::ones({40, 0}), at::ones({0, 8})));
}

}  // namespace headroom::ops::tile_matmul_test
