#include "headroom/ops/linear_attention.h"

#include "gradients.h"
#include "headroom/core/error.h"
#include "linear_attention_cases.h"
#include "one_thread.h"

namespace headroom::ops {
namespace linear_attention_test {

using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

// The definition with the T x S matrix.
at::Tensor by_hand(const LinearAttentionInputs& in) {
  const std::int64_t share = in.q.size(1) / in.k.size(1);
  const at::Tensor k = in.k.repeat_interleave(share, 1), v = in.v.repeat_interleave(share, 1);
  at::Tensor a = in.q.matmul(k.transpose(2, 3)) * in.factor;
  if (in.causal) {
    a = a.tril(in.k.size(2) - in.q.size(2));
  }
  if (in.valid_keys) {
    a = a * in.valid_keys->to(a.scalar_type()).unsqueeze(1).unsqueeze(1);
  }
  const at::Tensor o = a.matmul(v) * in.output_factor;
  return in.normalise ? o / (a.sum(-1, true) + in.epsilon) : o;
}

LinearAttentionInputs random_inputs(std::int64_t t, std::int64_t s, bool causal) {
  LinearAttentionInputs in = LinearAttentionCase{2, 4, 2, t, s, 5, causal, true, false}.inputs({at::kDouble});
  in.factor = in.output_factor = 1.0;
  in.epsilon = 1e-3;
  return in;
}

TEST(LinearAttention, EqualsTheMatrixAndItsGradients) {
  for (const LinearAttentionCase& c : linear_attention_cases()) {
    at::manual_seed(c.t + c.s);
    LinearAttentionInputs like = c.inputs({at::kDouble});
    like.epsilon = 1e-3;
    const std::vector<at::Tensor> leaves = {like.q, like.k, like.v};
    expect_close(evaluate([&](const auto& x) { return linear_attention(with_leaves(like, x)); }, leaves),
                 evaluate([&](const auto& x) { return by_hand(with_leaves(like, x)); }, leaves), 1e-11, c.name());
  }
}

TEST(LinearAttention, ThreadsDoNotChangeTheResult) {
  for (const LinearAttentionCase& c : linear_attention_cases()) {
    at::manual_seed(c.t + c.s);
    const Problem problem = c.problem({});
    testing::expect_threads_change_nothing([&](const auto& x) { return problem.run(x, Implementation::fused); },
                                           problem.leaves, c.name());
  }
}

TEST(LinearAttention, AStateCarriesThePast) {
  at::manual_seed(1);
  const LinearAttentionInputs all = random_inputs(20, 20, true);
  const at::Tensor whole = linear_attention(all);
  LinearState state;
  std::vector<at::Tensor> rows;
  for (const auto& [begin, n] : std::vector<std::pair<int, int>>{{0, 7}, {7, 1}, {8, 1}, {9, 11}}) {
    LinearAttentionInputs part = all;
    part.q = all.q.narrow(2, begin, n);
    part.k = all.k.narrow(2, begin, n);
    part.v = all.v.narrow(2, begin, n);
    rows.push_back(linear_attention(part, Implementation::automatic, &state));
  }
  EXPECT_LE(relative_error(at::cat(rows, 2), whole), 1e-13);
  EXPECT_EQ(state.kv.numel(), 2 * 2 * 5 * 5);
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

TEST(LinearAttention, LowPrecisionAccumulatesInFloat32) {
  at::manual_seed(2);
  const LinearAttentionInputs wide = random_inputs(200, 200, true);
  LinearAttentionInputs in = wide;
  in.q = wide.q.to(at::kBFloat16);
  in.k = wide.k.to(at::kBFloat16);
  in.v = wide.v.to(at::kBFloat16);
  const at::Tensor o = linear_attention(in);
  EXPECT_EQ(o.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_error(o, by_hand(wide)), 4.0 / 256);  // inputs and result have 8 bits
}

TEST(LinearAttention, NothingVisibleGivesZero) {
  LinearAttentionInputs in = random_inputs(3, 3, false);
  in.epsilon = 0.0;
  in.valid_keys = at::zeros({2, 3}, at::kBool);
  EXPECT_EQ(linear_attention(in).abs().max().item<double>(), 0.0);
  EXPECT_THROW(linear_attention(random_inputs(4, 3, true)), Error);
}

}  // namespace linear_attention_test
}  // namespace headroom::ops
