// Tests sinks, biases on the scores, and values with another width than keys.
#include <cmath>

#include "attention_cases.h"
#include "gradients.h"
#include "headroom/ops/linear_attention.h"

namespace headroom::ops::attention_terms_test {

using testing::evaluate;
using testing::Evaluated;

AttentionInputs sink_inputs(AttentionCase c, at::ScalarType type) {
  c.sink = true;
  return c.inputs({type});
}

Evaluated evaluate_attention(const AttentionInputs& in, Implementation implementation) {
  return testing::evaluate([&](const auto& x) { return attention(with_leaves(in, x), implementation); }, leaves_of(in));
}

// A sink far below the scores has no effect; a sink far above makes the result 0.
TEST(Sink, FarFromTheScores) {
  for (const std::int64_t t : {3, 70}) {
    at::manual_seed(2);
    AttentionInputs in = AttentionCase{1, 2, 2, t, t, 4}.inputs({});
    const at::Tensor plain = attention(in, Implementation::fused);
    for (const double far : {-200.0, -std::numeric_limits<double>::infinity()}) {
      in.sink = at::full({2}, far);
      EXPECT_TRUE(attention(in, Implementation::fused).equal(plain)) << far;
      EXPECT_LE(testing::relative_error(attention_reference(in), plain), 1e-6) << far;
    }
    for (const double far : {200.0, 3e38}) {
      in.sink = at::full({2}, far);
      for (const Implementation implementation : {Implementation::fused, Implementation::reference}) {
        const Evaluated got = evaluate_attention(in, implementation);
        EXPECT_LE(got.value.abs().max().item<double>(), 1e-30) << far;
        for (const at::Tensor& gradient : got.gradients) {
          EXPECT_LE(gradient.abs().max().item<double>(), 1e-30) << far;
        }
      }
    }
  }
}

TEST(Sink, AFullyMaskedRowIsZero) {
  at::manual_seed(3);
  for (const std::int64_t t : {3, 20}) {
    AttentionInputs in = sink_inputs({2, 2, 2, t, t, 4, false}, at::kFloat);
    in.mask.valid_keys = at::ones({2, t}, at::kBool);
    in.mask.valid_keys->select(0, 1).fill_(false);
    for (const Implementation implementation : {Implementation::fused, Implementation::reference}) {
      const Evaluated got = evaluate_attention(in, implementation);
      EXPECT_EQ(got.value[1].abs().max().item<double>(), 0.0);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(got.gradients[i][1].abs().max().item<double>(), 0.0) << i;
      }
      EXPECT_TRUE(got.gradients[3].isfinite().all().item<bool>());
    }
  }
}

// A mixture adds exp(sink) to its epsilon.
TEST(Sink, WithAMixture) {
  at::manual_seed(4);
  AttentionCase c{1, 2, 2, 6, 6, 4};
  c.mixture = MixtureCase{.epsilon = 0.5};
  AttentionInputs in = c.inputs({at::kDouble}), together = in;
  in.sink = at::full({2}, std::log(0.25), at::kDouble);
  together.mixture->epsilon = 0.75;
  EXPECT_LE(testing::relative_error(attention_reference(in), attention_reference(together)), 1e-14);
}

TEST(Sink, OneForEachHead) {
  AttentionInputs in = AttentionCase{1, 2, 2, 4, 4, 3}.inputs({});
  in.sink = at::zeros({3});
  EXPECT_THROW(attention(in), Error);
}

// A channel that is 1 in the queries and holds the bias in the keys acts as a bias of each key.
TEST(ScoreBias, HasTheGradientOfAChannel) {
  at::manual_seed(2);
  AttentionCase c{2, 4, 4, 5, 7, 3};
  c.bias = BiasCase{.per_query = false};
  const AttentionInputs in = c.inputs({at::kDouble});
  const auto with_channel = [&](const std::vector<at::Tensor>& x) {
    const at::Tensor ones = at::ones_like(x[0].narrow(3, 0, 1)) / in.scale;
    return attention({.q = at::cat({x[0], ones}, 3),
                      .k = at::cat({x[1], x[3].transpose(2, 3)}, 3),
                      .v = x[2],
                      .scale = in.scale,
                      .mask = in.mask});
  };
  testing::expect_close(evaluate([&](const auto& x) { return attention(with_leaves(in, x)); }, leaves_of(in)),
                        evaluate(with_channel, leaves_of(in)), 1e-13, "bias");
}

TEST(ScoreBias, RefusesMismatchedInputs) {
  AttentionInputs in = AttentionCase{2, 4, 2, 5, 7, 3}.inputs({});
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{2, 4, 5, 6}, {2, 1, 5, 7}, {3, 4, 5, 7}, {2, 4, 2, 7}, {4, 5, 7}}) {
    in.bias = at::zeros(shape);
    EXPECT_THROW(attention(in), Error) << at::IntArrayRef(shape);
  }
}

// Biases of queries and keys must equal a bias of pairs that is their sum, also in the fused kernels. Heads are
// composed before the softmax; without composition, the gradient of the query's bias would be 0.
TEST(TokenBias, IsTheSumOfItsTerms) {
  for (const std::int64_t t : {3, 40}) {  // decode path, then blocks
    for (const bool per_batch : {false, true}) {
      at::manual_seed(5);
      AttentionCase c{2, 4, 2, t, t + 7, 6};
      c.bias = BiasCase{.per_batch = per_batch, .by_token = true};
      c.composed = ComposedCase{.post = false};
      const AttentionInputs in = c.inputs({at::kFloat});
      const auto pairs = [&](const std::vector<at::Tensor>& x) {
        AttentionInputs whole = with_leaves(in, x);
        whole.bias = whole.query_bias->unsqueeze(3) + whole.key_bias->unsqueeze(2);
        whole.query_bias = whole.key_bias = std::nullopt;
        return attention(whole);
      };
      testing::expect_close(evaluate_attention(in, Implementation::fused), evaluate(pairs, leaves_of(in)), 1e-5,
                            c.name());
    }
  }
}

TEST(TokenBias, RefusesMismatchedInputs) {
  const AttentionInputs in = AttentionCase{2, 4, 2, 5, 7, 3}.inputs({});
  const auto refused = [&](const std::vector<std::int64_t>& query, const std::vector<std::int64_t>& key) {
    AttentionInputs wrong = in;
    wrong.query_bias = at::zeros(query);
    wrong.key_bias = at::zeros(key);
    EXPECT_THROW(attention(wrong), Error) << at::IntArrayRef(query) << at::IntArrayRef(key);
  };
  refused({2, 4, 7}, {2, 4, 7});
  refused({2, 4, 5}, {2, 2, 7});
  refused({3, 4, 5}, {2, 4, 7});
  refused({4, 5}, {2, 4, 7});
  AttentionInputs alone = in;
  alone.key_bias = at::zeros({2, 4, 7});
  EXPECT_THROW(attention(alone), Error);
}

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

}  // namespace headroom::ops::attention_terms_test
