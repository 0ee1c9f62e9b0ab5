#include "headroom/ops/head_map.h"

#include "gradients.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops {
namespace head_map_test {

using testing::relative_error;

struct Sizes {
  std::int64_t b, h, groups, t, s, rank;
};

// Every term by its definition, entry by entry.
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

}  // namespace head_map_test
}  // namespace headroom::ops
