#include "engine/ops/attention/row_terms.h"

#include "gradients.h"

namespace headroom::ops {
namespace row_terms_test {

TEST(RowTerms, OtherNumbersTakeTheReference) {
  const at::Tensor t = at::randn({1, 2, 3, 4}, at::kDouble), directions = at::randn({2, 2, 4}, at::kDouble);
  const at::Tensor terms = row_terms(t, directions);
  EXPECT_EQ(terms.scalar_type(), at::kDouble);
  EXPECT_EQ(terms.sizes(), at::IntArrayRef({1, 2, 3, 3}));
  EXPECT_LE(testing::relative_error(terms[0][1][2], t[0][1].matmul(directions[1][1])), 1e-15);
  EXPECT_LE(testing::relative_error(terms[0][1][0], t[0][1].square().sum(1)), 1e-15);
}

}  // namespace row_terms_test
}  // namespace headroom::ops
