// Tests that the loops of the decode path have the bits of the tensor operations that they replace.
#include "engine/ops/one_pass.h"

#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

namespace headroom::ops::one_pass_test {

TEST(OnePass, NormalisesLikeTorch) {
  const c10::InferenceMode no_graph;
  for (const std::int64_t width : {1, 5, 31, 77, 96, 412, 1000}) {
    for (const std::int64_t rows : {1, 3, 8, 130}) {
      const at::Tensor x = at::randn({rows, 1, width}) * 3.0, scale = at::randn({width});
      const at::Tensor expected = at::rms_norm(x, scale.sizes(), scale, 1e-5);
      EXPECT_TRUE(rms_norm_once(x, scale, 1e-5, at::kFloat).equal(expected)) << rows << " x " << width;
      EXPECT_TRUE(rms_norm_once(x, scale, 1e-5, at::kBFloat16).equal(expected.to(at::kBFloat16)))
          << rows << " x " << width;
    }
  }
}

TEST(OnePass, RotatesLikeTensorOperations) {
  const c10::InferenceMode no_graph;
  const std::vector<std::int64_t> first = {4, 0, 2};
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t n : {1, 5}) {
      const std::int64_t half = 6, e = 17, rows = 9 + n;
      // The layout is a projection's: the heads of a token are adjacent.
      const at::Tensor x = at::randn({3, n, 2, e}).to(type).transpose(1, 2);
      const at::Tensor rotations = at::randn({2, rows + 3, half}).narrow(1, 2, rows);
      std::vector<at::Tensor> expected;
      for (std::int64_t b = 0; b < 3; ++b) {
        const at::Tensor own = rotations.narrow(1, first[static_cast<std::size_t>(b)], n), cos = own[0], sin = own[1];
        const at::Tensor wide = x[b].to(at::kFloat), p = wide.narrow(2, 0, half), q = wide.narrow(2, half, half);
        const at::Tensor rest = wide.narrow(2, 2 * half, e - 2 * half);
        expected.push_back(at::cat({p * cos - q * sin, q * cos + p * sin, rest}, 2).to(type));
      }
      EXPECT_TRUE(rotate_once(x, rotations, first).equal(at::stack(expected))) << at::toString(type) << ", " << n;
    }
  }
}

}  // namespace headroom::ops::one_pass_test
