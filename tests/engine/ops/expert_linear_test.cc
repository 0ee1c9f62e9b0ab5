#include "headroom/ops/linear.h"

#include "expert_linear_cases.h"
#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops::expert_linear_test {

using testing::evaluate;
using testing::expect_close;

TEST(ExpertLinear, EveryTokenOnOneExpertAndEmptyExperts) {
  at::manual_seed(4);
  const ExpertLinearCase s{40, 2, 1, 5, 12, 9, false, true};
  ExpertLinearInputs in = s.inputs({});
  in.index = at::full({s.n, s.heads, 1}, 3) + (at::arange(s.heads) * s.experts).view({1, s.heads, 1});
  const auto run = [&](Implementation implementation) {
    return evaluate(
        [&](const auto& x) {
          return expert_linear(
              {.input = x[0], .bank = x[1], .index = in.index, .weight = x[2], .sum_heads = s.sum_heads},
              implementation);
        },
        {in.input, in.bank, *in.weight});
  };
  const auto fused = run(Implementation::fused);
  expect_close(fused, run(Implementation::reference), s.precisions()[0].bound, "one expert");
  EXPECT_EQ(fused.gradients[1][0].abs().sum().item<float>(), 0.0F);
}

TEST(ExpertLinear, ThreadsDoNotChangeTheResult) {
  at::manual_seed(5);
  const Problem problem = ExpertLinearCase{301, 2, 2, 4, 24, 16, true, true}.problem({});
  testing::expect_threads_change_nothing([&](const auto& x) { return problem.run(x, Implementation::fused); },
                                         problem.leaves, "experts");
}

TEST(ExpertLinear, RefusesMismatchedInputs) {
  const at::Tensor index = at::zeros({2, 1, 1}, at::kLong);
  EXPECT_THROW(expert_linear({.input = at::ones({3, 4}), .bank = at::ones({1, 4, 2}), .index = index}), Error);
  EXPECT_THROW(expert_linear({.input = at::ones({2, 4}), .bank = at::ones({1, 5, 2}), .index = index}), Error);
  EXPECT_THROW(expert_linear({.input = at::ones({2, 4}), .bank = at::ones({1, 4, 2}), .index = index + 1}), Error);
  EXPECT_THROW(expert_linear({.input = at::ones({2, 0}), .bank = at::ones({1, 0, 2}), .index = index}), Error);
  EXPECT_THROW(
      expert_linear({.input = at::ones({2, 4}, at::kDouble), .bank = at::ones({1, 4, 2}, at::kDouble), .index = index},
                    Implementation::fused),
      UserError);
}

}  // namespace headroom::ops::expert_linear_test
