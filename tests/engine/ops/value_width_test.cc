// Values of another width than queries and keys: what the tables of cases do not say.
#include "gradients.h"
#include "headroom/core/error.h"
#include "headroom/ops/attention.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops {
namespace value_width_test {

TEST(ValueWidth, OfLinearAttentionsState) {
  const at::NoGradGuard no_grad;
  at::manual_seed(4);
  const at::Tensor q = at::rand({1, 2, 9, 3}), v = at::randn({1, 2, 9, 5});
  LinearState state;
  std::vector<at::Tensor> rows;
  for (std::int64_t i = 0; i < 9; ++i) {
    const at::Tensor here = q.narrow(2, i, 1);
    rows.push_back(linear_attention({.q = here, .k = here, .v = v.narrow(2, i, 1)}, Implementation::automatic, &state));
  }
  EXPECT_EQ(state.kv.sizes(), (std::vector<std::int64_t>{1, 2, 3, 5}));
  EXPECT_LE(testing::relative_error(at::cat(rows, 2), linear_attention({.q = q, .k = q, .v = v})), 1e-6);
}

TEST(ValueWidth, OtherAxesMustFit) {
  const at::Tensor q = at::ones({1, 2, 4, 3});
  EXPECT_THROW(attention({.q = q, .k = q, .v = at::ones({1, 2, 5, 7})}), Error);
  EXPECT_THROW(linear_attention({.q = q, .k = q, .v = at::ones({1, 1, 4, 7})}), Error);
}

}  // namespace value_width_test
}  // namespace headroom::ops
