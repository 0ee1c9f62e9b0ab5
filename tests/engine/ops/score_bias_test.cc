// A bias on attention's scores: its definition, and the shapes that it may have.
#include "engine/ops/attention/cases.h"
#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace score_bias_test {

using testing::evaluate;

TEST(ScoreBias, IsAddedToTheScores) {
  int compared = 0;
  for (const AttentionCase& c : attention_cases(Role::reference_only)) {
    if (!c.bias) {
      continue;
    }
    at::manual_seed(1);
    const AttentionInputs in = c.inputs({at::kDouble});
    const at::Tensor bias = in.bias->expand({c.b, c.h, c.t, c.s});
    at::Tensor expected = at::zeros_like(in.q);
    for (std::int64_t b = 0; b < c.b; ++b) {
      for (std::int64_t h = 0; h < c.h; ++h) {
        const std::int64_t g = h / (c.h / c.g);
        for (std::int64_t i = 0; i < c.t; ++i) {
          const std::int64_t n = c.causal ? c.s - c.t + i + 1 : c.s;
          const at::Tensor score = in.k[b][g].matmul(in.q[b][h][i]) * in.scale + bias[b][h][i];
          expected[b][h][i] = score.narrow(0, 0, n).softmax(0).matmul(in.v[b][g].narrow(0, 0, n));
        }
      }
    }
    EXPECT_LE(testing::relative_error(attention(in), expected), 1e-14) << c.name();
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

// A channel more in queries and keys, 1 in the queries and the bias in the keys, is a bias of each key.
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

TEST(ScoreBias, RefusesWhatDoesNotFit) {
  AttentionInputs in = AttentionCase{2, 4, 2, 5, 7, 3}.inputs({});
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{2, 4, 5, 6}, {2, 1, 5, 7}, {3, 4, 5, 7}, {2, 4, 2, 7}, {4, 5, 7}}) {
    in.bias = at::zeros(shape);
    EXPECT_THROW(attention(in), Error) << at::IntArrayRef(shape);
  }
}

}  // namespace score_bias_test
}  // namespace headroom::ops
