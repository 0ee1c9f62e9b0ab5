#include "headroom/ops/expert_linear.h"

#include <ATen/Parallel.h>

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace expert_linear_test {

using testing::evaluate;
using testing::expect_close;
using testing::random_tensor;

struct Sizes {
  std::int64_t n, heads, choices, experts, d_in, d_out;
  bool per_head, sum_heads, weighted;
};

std::string describe(const Sizes& s) {
  return fmt::format("N={} H={} K={} E={} {}x{}{}{}{}", s.n, s.heads, s.choices, s.experts, s.d_in, s.d_out,
                     s.per_head ? " per head" : "", s.sum_heads ? " summed" : "", s.weighted ? " weighted" : "");
}

at::Tensor random_index(const Sizes& s) {
  const at::Tensor own = at::rand({s.n, s.heads, s.experts}).argsort(std::int64_t{-1}).narrow(-1, 0, s.choices);
  return own + (at::arange(s.heads) * s.experts).view({1, s.heads, 1});
}

at::Tensor run(const Sizes& s, const at::Tensor& index, const std::vector<at::Tensor>& in, Implementation impl) {
  return expert_linear({.input = in[0],
                        .bank = in[1],
                        .index = index,
                        .weight = s.weighted ? std::optional(in[2]) : std::nullopt,
                        .sum_heads = s.sum_heads},
                       impl);
}

std::vector<at::Tensor> inputs(const Sizes& s, at::ScalarType type, bool strided) {
  const std::vector<std::int64_t> shape =
      s.per_head ? std::vector<std::int64_t>{s.n, s.heads, s.d_in} : std::vector<std::int64_t>{s.n, s.d_in};
  return {random_tensor(shape, type, strided), random_tensor({s.heads * s.experts, s.d_in, s.d_out}, type, strided),
          random_tensor({s.n, s.heads, s.choices}, at::kFloat, strided)};
}

const std::vector<Sizes> kSizes = {
    {1, 1, 1, 1, 1, 1, false, false, true},    {7, 2, 2, 3, 13, 5, false, false, true},
    {31, 3, 2, 5, 17, 19, true, true, true},   {64, 1, 4, 16, 33, 7, false, false, false},
    {29, 4, 1, 6, 8, 24, true, false, false},  {53, 2, 3, 3, 11, 37, true, true, false},
    {130, 2, 2, 4, 41, 23, false, true, true},
};

TEST(ExpertLinear, FusedEqualsReferenceInFloat) {
  at::manual_seed(1);
  for (const Sizes& s : kSizes) {
    for (const bool strided : {false, true}) {
      const at::Tensor index = random_index(s);
      const auto in = inputs(s, at::kFloat, strided);
      const auto fused = evaluate([&](const auto& x) { return run(s, index, x, Implementation::fused); }, in);
      const auto reference = evaluate([&](const auto& x) { return run(s, index, x, Implementation::reference); }, in);
      // Sums of at most max(d_in, N) * K * H products, each rounded to 2^-24; errors add up like a random walk.
      expect_close(fused, reference, 2e-6, describe(s));
    }
  }
}

TEST(ExpertLinear, FusedInBfloat16EqualsReferenceInDouble) {
  at::manual_seed(2);
  for (const Sizes& s : kSizes) {
    const at::Tensor index = random_index(s);
    const auto in = inputs(s, at::kBFloat16, false);
    const auto fused = evaluate([&](const auto& x) { return run(s, index, x, Implementation::fused); }, in);
    const auto reference =
        evaluate([&](const auto& x) { return run(s, index, x, Implementation::reference); }, testing::in_double(in));
    // Three roundings to 8 bits (product, scaled row, result), each at most 2^-9, and the weighting's own.
    expect_close(fused, reference, 4.0 / 256, describe(s));
  }
}

TEST(ExpertLinear, ReferenceEqualsOneProductPerTokenInDouble) {
  at::manual_seed(3);
  const Sizes s{9, 2, 2, 3, 5, 4, true, false, true};
  const at::Tensor index = random_index(s);
  const auto in = inputs(s, at::kDouble, false);
  const at::Tensor y = run(s, index, in, Implementation::automatic);
  at::Tensor expected = at::zeros({s.n, s.heads, s.d_out}, at::kDouble);
  for (std::int64_t n = 0; n < s.n; ++n) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t k = 0; k < s.choices; ++k) {
        const at::Tensor matrix = in[1][index[n][h][k].item<std::int64_t>()];
        expected[n][h] += in[2][n][h][k] * in[0][n][h].matmul(matrix);
      }
    }
  }
  EXPECT_LE(testing::relative_error(y, expected), 1e-14);
}

TEST(ExpertLinear, EveryTokenOnOneExpertAndEmptyExperts) {
  at::manual_seed(4);
  const Sizes s{40, 2, 1, 5, 12, 9, false, true, true};
  const at::Tensor index = at::full({s.n, s.heads, 1}, 3) + (at::arange(s.heads) * s.experts).view({1, s.heads, 1});
  const auto in = inputs(s, at::kFloat, false);
  const auto fused = evaluate([&](const auto& x) { return run(s, index, x, Implementation::fused); }, in);
  const auto reference = evaluate([&](const auto& x) { return run(s, index, x, Implementation::reference); }, in);
  expect_close(fused, reference, 2e-6, "one expert");
  EXPECT_EQ(fused.gradients[1][0].abs().sum().item<float>(), 0.0F);
}

TEST(ExpertLinear, ThreadsDoNotChangeTheResult) {
  at::manual_seed(5);
  const Sizes s{301, 2, 2, 4, 24, 16, true, true, true};
  const at::Tensor index = random_index(s);
  const auto in = inputs(s, at::kFloat, false);
  testing::expect_threads_change_nothing([&](const auto& x) { return run(s, index, x, Implementation::fused); }, in,
                                         "experts");
}

TEST(ExpertLinear, RefusesWhatDoesNotFit) {
  const at::Tensor index = at::zeros({2, 1, 1}, at::kLong);
  EXPECT_THROW(expert_linear({.input = at::ones({3, 4}), .bank = at::ones({1, 4, 2}), .index = index}), Error);
  EXPECT_THROW(expert_linear({.input = at::ones({2, 4}), .bank = at::ones({1, 5, 2}), .index = index}), Error);
  EXPECT_THROW(expert_linear({.input = at::ones({2, 4}), .bank = at::ones({1, 4, 2}), .index = index + 1}), Error);
  EXPECT_THROW(expert_linear({.input = at::ones({2, 0}), .bank = at::ones({1, 0, 2}), .index = index}), Error);
  EXPECT_THROW(
      expert_linear({.input = at::ones({2, 4}, at::kDouble), .bank = at::ones({1, 4, 2}, at::kDouble), .index = index},
                    Implementation::fused),
      MisuseError);
}

}  // namespace expert_linear_test
}  // namespace headroom::ops
