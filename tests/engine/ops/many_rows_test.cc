// Tests that in ManyRows mode, results do not depend on the number of rows or on an element's place.
#include "engine/ops/many_rows.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "headroom/ops/linear.h"

namespace headroom::ops::many_rows_test {

using Elementwise = std::function<at::Tensor(const at::Tensor&)>;

TEST(ManyRows, AnElementwiseFunctionOfRowsGivesEachItsOwnBits) {
  const c10::InferenceMode no_graph;
  const Elementwise silu = [](const at::Tensor& x) { return at::silu(x); };
  const Elementwise gelu = [](const at::Tensor& x) { return at::gelu(x); };
  const Elementwise gelu_tanh = [](const at::Tensor& x) { return at::gelu(x, "tanh"); };
  struct Function {
    Elementwise f;
    bool takes_gaps;
  };
  for (const Function& one : {Function{silu, false}, {silu, true}, {gelu_tanh, true}, {gelu, false}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const std::int64_t width : {1, 5, 31, 64, 100, 131, 275, 1376, 2730, 9984, 40000}) {
        const at::Tensor x = at::randn({7, 1, width}).to(type);
        const at::Tensor all = elementwise_by_rows(x, one.f, one.takes_gaps);
        EXPECT_TRUE(all.is_contiguous());
        for (std::int64_t row = 0; row < 7; ++row) {
          EXPECT_TRUE(all.narrow(0, row, 1).equal(one.f(x.narrow(0, row, 1)))) << width << ", " << at::toString(type);
        }
      }
    }
  }
  EXPECT_EQ(elementwise_by_rows(at::empty({0, 3}), silu).sizes(), at::IntArrayRef({0, 3}));
}

TEST(ManyRows, ARowsProductsDoNotDependOnTheOtherRows) {
  const at::NoGradGuard no_grad;
  const ManyRows mode;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({130, 67}).to(type), bank = at::randn({4, 67, 45}).to(type);
    const at::Tensor index = at::randint(4, {130, 1, 2}, at::kLong), w = bank[0], b = bank[1][0];
    const at::Tensor dense = ops::linear(x, w, b), experts = expert_linear({.input = x, .bank = bank, .index = index});
    for (const std::int64_t n : {1, 2, 5, 15, 16, 33, 129}) {
      const at::Tensor some = x.narrow(0, 1, n);
      EXPECT_TRUE(ops::linear(some, w, b).equal(dense.narrow(0, 1, n))) << n << " rows, " << at::toString(type);
      EXPECT_TRUE(
          expert_linear({.input = some, .bank = bank, .index = index.narrow(0, 1, n)}).equal(experts.narrow(0, 1, n)))
          << n << " rows, " << at::toString(type);
    }
  }
}

}  // namespace headroom::ops::many_rows_test
