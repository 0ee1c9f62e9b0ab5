#include "headroom/ops/linear_attention.h"

#include <ATen/Parallel.h>

#include "gradients.h"
#include "headroom/core/error.h"
#include "one_thread.h"

namespace headroom::ops {
namespace linear_attention_test {

using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

// With the whole T x S matrix.
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
  const auto make = [](std::int64_t heads, std::int64_t n) {
    return at::rand({2, n, heads, 5}, at::kDouble).add(0.1).transpose(1, 2);  // strided
  };
  LinearAttentionInputs in;
  in.q = make(4, t);
  in.k = make(2, s);
  in.v = make(2, s);
  in.causal = causal;
  in.epsilon = 1e-3;
  return in;
}

TEST(LinearAttention, EqualsTheMatrixAndItsGradients) {
  for (const auto& [t, s] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 9}, {13, 13}, {64, 64}, {65, 131}, {130, 130}}) {
    for (const bool causal : {true, false}) {
      for (const bool padded : {false, true}) {
        at::manual_seed(t + s);
        LinearAttentionInputs like = random_inputs(t, s, causal);
        like.normalise = t != 13;
        like.factor = 0.7;
        like.output_factor = 1.3;
        if (padded) {
          like.valid_keys = at::rand({2, s}).gt(0.3);
        }
        const auto with = [&](const std::vector<at::Tensor>& x) {
          LinearAttentionInputs in = like;
          in.q = x[0];
          in.k = x[1];
          in.v = x[2];
          return in;
        };
        const std::vector<at::Tensor> leaves = {like.q, like.k, like.v};
        expect_close(evaluate([&](const auto& x) { return linear_attention(with(x)); }, leaves),
                     evaluate([&](const auto& x) { return by_hand(with(x)); }, leaves), 1e-11,
                     fmt::format("T {} S {} causal {} padded {}", t, s, causal, padded));
      }
    }
  }
}

// Sums of S <= 200 positive terms in another order: sqrt(S) roundings of 2^-24, 8e-7. With an epsilon as large as the
// sum of the weights, a gradient keeps a quarter at least of the two sums that it is the difference of.
TEST(LinearAttention, FusedEqualsReferenceInFloat) {
  for (const auto& [t, s] :
       std::vector<std::pair<int, int>>{{1, 1}, {1, 9}, {13, 13}, {64, 64}, {65, 131}, {130, 130}, {63, 200}}) {
    for (const bool causal : {true, false}) {
      at::manual_seed(t + s);
      LinearAttentionInputs like = random_inputs(t, s, causal);
      like.normalise = t != 13;
      like.epsilon = static_cast<double>(s);
      like.valid_keys = at::rand({2, s}).gt(0.1);
      const auto run = [&](Implementation impl) {
        return [&, impl](const std::vector<at::Tensor>& x) {
          LinearAttentionInputs in = like;
          in.q = x[0];
          in.k = x[1];
          in.v = x[2];
          return linear_attention(in, impl);
        };
      };
      const std::vector<at::Tensor> leaves = {like.q.to(at::kFloat), like.k.to(at::kFloat), like.v.to(at::kFloat)};
      const auto fused = evaluate(run(Implementation::fused), leaves);
      expect_close(fused, evaluate(run(Implementation::reference), leaves), 2 * 4 * 8e-7,
                   fmt::format("T {} S {} causal {}", t, s, causal));
      testing::expect_threads_change_nothing(run(Implementation::fused), leaves, "linear attention");
    }
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

TEST(LinearAttention, RefusesWhatDoesNotFit) {
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

TEST(LinearAttention, LowPrecisionKeepsItsSumsInFloat) {
  at::manual_seed(2);
  const LinearAttentionInputs wide = random_inputs(200, 200, true);
  LinearAttentionInputs in = wide;
  in.q = wide.q.to(at::kBFloat16);
  in.k = wide.k.to(at::kBFloat16);
  in.v = wide.v.to(at::kBFloat16);
  const at::Tensor o = linear_attention(in);
  EXPECT_EQ(o.scalar_type(), at::kBFloat16);
  EXPECT_LE(relative_error(o, by_hand(wide)), 4.0 / 256);  // inputs and result are rounded to 8 bits
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
