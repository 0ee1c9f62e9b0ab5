#include "headroom/ops/attention.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <limits>

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace attention_test {

using testing::evaluate;
using testing::expect_close;
using testing::random_tensor;
using testing::relative_error;

struct Sizes {
  std::int64_t b, h, g, t, s, e;
  bool causal;
  std::int64_t window;
  bool relative;
};

std::string describe(const Sizes& s) {
  return fmt::format("B={} H={} G={} T={} S={} e={} causal={} window={} relative={}", s.b, s.h, s.g, s.t, s.s, s.e,
                     s.causal, s.window, s.relative);
}

AttentionInputs make(const Sizes& s, const std::vector<at::Tensor>& x) {
  AttentionInputs in{.q = x[0], .k = x[1], .v = x[2], .scale = 1.0 / std::sqrt(static_cast<double>(s.e))};
  in.mask = {.causal = s.causal, .window = s.window};
  if (s.relative) {
    in.q_position = x[3];
    in.r = x[4];
  }
  return in;
}

std::vector<at::Tensor> inputs(const Sizes& s, at::ScalarType type, bool strided) {
  std::vector<at::Tensor> in = {random_tensor({s.b, s.h, s.t, s.e}, type, strided),
                                random_tensor({s.b, s.g, s.s, s.e}, type, strided),
                                random_tensor({s.b, s.g, s.s, s.e}, type, strided)};
  if (s.relative) {
    in.push_back(random_tensor({s.b, s.h, s.t, s.e}, type, strided));
    in.push_back(random_tensor({s.h, s.causal ? s.s : s.s + s.t - 1, s.e}, type, strided));
  }
  return in;
}

// The definition, one number at a time.
at::Tensor by_hand(const Sizes& s, const std::vector<at::Tensor>& x) {
  at::Tensor o = at::zeros({s.b, s.h, s.t, s.e}, at::kDouble);
  for (std::int64_t b = 0; b < s.b; ++b) {
    for (std::int64_t h = 0; h < s.h; ++h) {
      const std::int64_t g = h / (s.h / s.g);
      for (std::int64_t i = 0; i < s.t; ++i) {
        const std::int64_t here = s.s - s.t + i;
        at::Tensor score = at::full({s.s}, -std::numeric_limits<double>::infinity(), at::kDouble);
        for (std::int64_t j = 0; j < s.s; ++j) {
          if (s.causal && (j > here || (s.window > 0 && here - j >= s.window))) {
            continue;
          }
          score[j] = x[0][b][h][i].dot(x[1][b][g][j]);
          if (s.relative) {
            score[j] += x[3][b][h][i].dot(x[4][h][j - here + s.s - 1]);
          }
        }
        o[b][h][i] = (score / std::sqrt(static_cast<double>(s.e))).softmax(0).matmul(x[2][b][g]);
      }
    }
  }
  return o;
}

const std::vector<Sizes> kSizes = {
    {1, 1, 1, 1, 1, 1, true, 0, false}, {2, 2, 2, 7, 7, 5, true, 0, false},  {1, 4, 2, 5, 11, 3, true, 0, false},
    {2, 3, 3, 6, 13, 4, true, 0, true}, {1, 2, 2, 1, 9, 7, true, 0, true},   {1, 2, 1, 8, 8, 3, true, 3, false},
    {2, 2, 2, 5, 12, 3, true, 4, true}, {1, 2, 2, 4, 6, 5, false, 0, false}, {1, 2, 2, 4, 6, 5, false, 0, true},
    {1, 1, 1, 1, 8, 2, true, 3, false}, {1, 2, 2, 7, 3, 5, false, 0, true},
};

TEST(Attention, ReferenceIsTheDefinition) {
  at::manual_seed(1);
  for (const Sizes& s : kSizes) {
    const auto in = inputs(s, at::kDouble, false);
    EXPECT_LE(relative_error(attention_reference(make(s, in)), by_hand(s, in)), 1e-13) << describe(s);
  }
}

TEST(Attention, AutomaticEqualsReferenceInDouble) {
  at::manual_seed(2);
  std::vector<Sizes> sizes = kSizes;
  sizes.push_back({2, 3, 3, 67, 131, 17, true, 0, false});
  sizes.push_back({2, 2, 2, 70, 133, 41, true, 0, true});
  sizes.push_back({1, 4, 2, 65, 97, 24, true, 29, true});
  sizes.push_back({2, 4, 2, 3, 131, 17, true, 0, true});  // few queries, many keys
  sizes.push_back({1, 4, 4, 7, 200, 24, true, 90, true});
  sizes.push_back({2, 2, 1, 5, 150, 16, false, 0, true});
  for (const Sizes& s : sizes) {
    for (const bool strided : {false, true}) {
      const auto in = inputs(s, at::kFloat, strided);
      const auto got = evaluate([&](const auto& x) { return attention(make(s, x)); }, in);
      const auto expected =
          evaluate([&](const auto& x) { return attention_reference(make(s, x)); }, testing::in_double(in));
      // Scores are sums of e <= 41 products of size ~1: an error of about 41 * 2^-24 in a score is the same relative
      // error in a probability, and gradients sum S <= 133 of them.
      expect_close(got, expected, 1e-5, describe(s));
    }
  }
}

TEST(Attention, ThreadsDoNotChangeTheResult) {
  at::manual_seed(6);
  for (const Sizes& s : {Sizes{2, 4, 2, 130, 170, 9, true, 0, true}, Sizes{2, 4, 2, 3, 170, 9, true, 0, true}}) {
    testing::expect_threads_change_nothing([&](const auto& x) { return attention(make(s, x), Implementation::fused); },
                                           inputs(s, at::kFloat, false), describe(s));
  }
}

TEST(Attention, RowsWithoutAVisibleKeyGiveZeroAndNoGradient) {
  at::manual_seed(4);
  const Sizes s{2, 2, 2, 4, 4, 3, false, 0, false};
  at::Tensor valid = at::ones({2, 4}, at::kBool);
  valid[1].zero_();
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const auto result = evaluate(
        [&](const auto& x) {
          AttentionInputs in = make(s, x);
          in.mask.valid_keys = valid;
          return attention(in);
        },
        inputs(s, type, false));
    EXPECT_EQ(result.value[1].abs().max().item<double>(), 0.0);
    for (const at::Tensor& gradient : result.gradients) {
      EXPECT_TRUE(gradient.isfinite().all().item<bool>());
      EXPECT_EQ(gradient[1].abs().max().item<double>(), 0.0);
    }
  }
}

TEST(Attention, WithoutAnyKeyGivesZeroAndNoGradient) {
  at::manual_seed(5);
  for (const std::int64_t queries : {3, 8, 70}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const Sizes s{1, 2, 2, queries, 0, 16, false, 0, false};
      const auto result = evaluate([&](const auto& x) { return attention(make(s, x)); }, inputs(s, type, false));
      EXPECT_EQ(result.value.abs().max().item<double>(), 0.0) << queries << type;
      EXPECT_EQ(result.gradients[0].abs().max().item<double>(), 0.0) << queries << type;
    }
  }
}

TEST(Attention, ExtremeScoresStayFinite) {
  const Sizes s{1, 1, 1, 3, 3, 2, true, 0, false};
  auto in = inputs(s, at::kFloat, false);
  in[0] = in[0] * 1e4;
  EXPECT_TRUE(attention(make(s, in)).isfinite().all().item<bool>());
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const at::Tensor q = at::ones({1, 2, 4, 3}), k = at::ones({1, 2, 3, 3});
  EXPECT_THROW(attention({.q = q, .k = k, .v = k}), Error);  // causal with fewer keys than queries
  EXPECT_THROW(attention({.q = q, .k = at::ones({1, 3, 4, 3}), .v = at::ones({1, 3, 4, 3})}), Error);
  AttentionInputs half{.q = q, .k = q, .v = q};
  half.q_position = q;
  EXPECT_THROW(attention(half), Error);
}

}  // namespace attention_test
}  // namespace headroom::ops
