// A bias on attention's scores.
#include "headroom/core/error.h"
#include "sequences.h"

namespace headroom::ops {
namespace score_bias_test {

using testing::relative_error;
using testing::sequences::evaluate_in;

AttentionInputs inputs(std::int64_t batch, std::int64_t rows) {
  const at::TensorOptions type = at::kDouble;
  AttentionInputs in{
      .q = at::randn({2, 4, 5, 3}, type), .k = at::randn({2, 2, 7, 3}, type), .v = at::randn({2, 2, 7, 3}, type)};
  in.scale = 0.7;
  in.bias = at::randn({batch, 4, rows, 7}, type);
  return in;
}

TEST(ScoreBias, IsAddedToTheScores) {
  at::manual_seed(1);
  for (const std::int64_t batch : {1, 2}) {
    for (const std::int64_t rows : {1, 5}) {
      const AttentionInputs in = inputs(batch, rows);
      at::Tensor expected = at::zeros({2, 4, 5, 3}, at::kDouble);
      for (std::int64_t b = 0; b < 2; ++b) {
        for (std::int64_t h = 0; h < 4; ++h) {
          for (std::int64_t i = 0; i < 5; ++i) {
            const std::int64_t n = 7 - 5 + i + 1;
            const at::Tensor score =
                in.k[b][h / 2].matmul(in.q[b][h][i]) * 0.7 + (*in.bias)[batch == 1 ? 0 : b][h][rows == 1 ? 0 : i];
            expected[b][h][i] = score.narrow(0, 0, n).softmax(0).matmul(in.v[b][h / 2].narrow(0, 0, n));
          }
        }
      }
      EXPECT_LE(relative_error(attention(in), expected), 1e-14);
    }
  }
}

// A channel more in queries and keys, 1 in the queries and the bias in the keys, is a bias of each key.
TEST(ScoreBias, HasTheGradientOfAChannel) {
  at::manual_seed(2);
  AttentionInputs in = inputs(2, 1);
  in.k = in.k.repeat_interleave(2, 1);
  in.v = in.v.repeat_interleave(2, 1);
  const testing::Evaluated got = evaluate_in(in, at::kDouble, Implementation::automatic);
  const testing::Evaluated wide = testing::evaluate(
      [](const std::vector<at::Tensor>& x) {
        const at::Tensor ones = at::ones_like(x[0].narrow(3, 0, 1)) / 0.7;
        AttentionInputs with{.q = at::cat({x[0], ones}, 3), .k = at::cat({x[1], x[3].transpose(2, 3)}, 3), .v = x[2]};
        with.scale = 0.7;
        return attention(with);
      },
      {in.q, in.k, in.v, *in.bias});
  testing::expect_close(got, wide, 1e-13, "bias");
}

TEST(ScoreBias, WhatDoesNotFitOrIsNotFusedSaysWhy) {
  at::manual_seed(3);
  AttentionInputs in = inputs(2, 5);
  in.bias = at::zeros({2, 4, 5, 6}, at::kDouble);
  EXPECT_THROW(attention(in), Error);
  in.bias = at::zeros({2, 1, 5, 7}, at::kDouble);
  EXPECT_THROW(attention(in), Error);
  in.bias = at::zeros({1, 4, 1, 7});
  for (at::Tensor* t : {&in.q, &in.k, &in.v}) {
    *t = t->to(at::kFloat);
  }
  EXPECT_THROW(attention(in, Implementation::fused), MisuseError);
  EXPECT_EQ(attention(in).sizes(), in.q.sizes());
}

}  // namespace score_bias_test
}  // namespace headroom::ops
