#include "headroom/ops/linear_attention.h"

#include "gradients.h"
#include "headroom/core/error.h"
#include "linear_attention_cases.h"
#include "one_thread.h"

namespace headroom::ops::linear_attention_test {

LinearAttentionInputs random_inputs(std::int64_t t, std::int64_t s, bool causal) {
  LinearAttentionInputs in = LinearAttentionCase{2, 4, 2, t, s, 5, causal, true, false}.inputs({at::kDouble});
  in.factor = in.output_factor = 1.0;
  in.epsilon = 1e-3;
  return in;
}

TEST(LinearAttention, ThreadsDoNotChangeTheResult) {
  for (const LinearAttentionCase& c : linear_attention_cases()) {
    at::manual_seed(c.t + c.s);
    const Problem problem = c.problem({});
    testing::expect_threads_change_nothing([&](const auto& x) { return problem.run(x, Implementation::fused); },
                                           problem.leaves, c.name());
  }
}

TEST(LinearAttention, RefusesMismatchedInputs) {
  const LinearAttentionInputs in = random_inputs(3, 3, true);
  const std::int64_t b = in.k.size(0), g = in.k.size(1), e = in.k.size(3);
  LinearAttentionInputs other = in;
  other.q = in.q.narrow(1, 0, 0);
  EXPECT_THROW(linear_attention(other), Error);
  other = in;
  other.valid_keys = at::ones({b, 4}, at::kBool);
  EXPECT_THROW(linear_attention(other), Error);
  other.valid_keys = at::ones({3}, at::kBool);
  EXPECT_THROW(linear_attention(other), Error);
  LinearState state{at::zeros({b, g, e, e + 1}, in.k.options()), at::zeros({b, g, e}, in.k.options())};
  EXPECT_THROW(linear_attention(in, Implementation::automatic, &state), Error);
  state = {at::zeros({b, g, e, e}, in.k.options()), {}};
  EXPECT_THROW(linear_attention(in, Implementation::automatic, &state), Error);
}

TEST(LinearAttention, NothingVisibleGivesZero) {
  LinearAttentionInputs in = random_inputs(3, 3, false);
  in.epsilon = 0.0;
  in.valid_keys = at::zeros({2, 3}, at::kBool);
  EXPECT_EQ(linear_attention(in).abs().max().item<double>(), 0.0);
  EXPECT_THROW(linear_attention(random_inputs(4, 3, true)), Error);
}

}  // namespace headroom::ops::linear_attention_test
