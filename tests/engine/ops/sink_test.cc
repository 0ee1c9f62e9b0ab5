// A sink in each head's softmax: its definition, and where it is far from the scores.
#include <cmath>
#include <limits>

#include "engine/ops/attention/cases.h"
#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace sink_test {

using testing::Evaluated;

AttentionInputs inputs(AttentionCase c, at::ScalarType type) {
  c.sink = true;
  return c.inputs({type});
}

Evaluated evaluate(const AttentionInputs& in, Implementation implementation) {
  return testing::evaluate([&](const auto& x) { return attention(with_leaves(in, x), implementation); }, leaves_of(in));
}

// p_ij = exp(s_ij) / (exp(b_h) + sum_j exp(s_ij)), one query at a time.
TEST(Sink, IsItsDefinition) {
  at::manual_seed(1);
  const AttentionInputs in = inputs({2, 4, 2, 5, 7, 3}, at::kDouble);
  at::Tensor expected = at::zeros({2, 4, 5, 3}, at::kDouble);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < 4; ++h) {
      for (std::int64_t i = 0; i < 5; ++i) {
        const std::int64_t n = 7 - 5 + i + 1;
        const at::Tensor weight = (in.k[b][h / 2].narrow(0, 0, n).matmul(in.q[b][h][i]) * in.scale).exp();
        expected[b][h][i] = weight.matmul(in.v[b][h / 2].narrow(0, 0, n)) / (weight.sum() + (*in.sink)[h].exp());
      }
    }
  }
  EXPECT_LE(testing::relative_error(attention_reference(in), expected), 1e-14);
}

// Far below the scores it changes nothing, far above them nothing is left.
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
        const Evaluated got = evaluate(in, implementation);
        EXPECT_LE(got.value.abs().max().item<double>(), 1e-30) << far;
        for (const at::Tensor& gradient : got.gradients) {
          EXPECT_LE(gradient.abs().max().item<double>(), 1e-30) << far;
        }
      }
    }
  }
}

TEST(Sink, ARowThatSeesNothingIsZero) {
  at::manual_seed(3);
  for (const std::int64_t t : {3, 20}) {
    AttentionInputs in = inputs({2, 2, 2, t, t, 4, false}, at::kFloat);
    in.mask.valid_keys = at::ones({2, t}, at::kBool);
    in.mask.valid_keys->select(0, 1).fill_(false);
    for (const Implementation implementation : {Implementation::fused, Implementation::reference}) {
      const Evaluated got = evaluate(in, implementation);
      EXPECT_EQ(got.value[1].abs().max().item<double>(), 0.0);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(got.gradients[i][1].abs().max().item<double>(), 0.0) << i;
      }
      EXPECT_TRUE(got.gradients[3].isfinite().all().item<bool>());
    }
  }
}

// Beside a mixture's epsilon its weight is added to it.
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

}  // namespace sink_test
}  // namespace headroom::ops
