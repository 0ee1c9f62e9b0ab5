#include "headroom/ops/linear_cross_entropy.h"

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops {
namespace linear_cross_entropy_test {

using testing::evaluate;
using testing::expect_close;
using testing::random_tensor;

at::Tensor targets(std::int64_t n, std::int64_t vocabulary) {
  at::Tensor target = at::randint(vocabulary, {n}, at::kLong);
  target.masked_fill_(at::rand({n}).lt(0.2), -1);  // some do not count
  target[0] = vocabulary - 1;
  return target;
}

void compare(at::ScalarType type, double bound) {
  at::manual_seed(1);
  struct Sizes {
    std::int64_t n, d, v;
    bool bias, transposed;
  };
  for (const Sizes& s : std::vector<Sizes>{{1, 1, 1, true, false},
                                           {7, 5, 3, false, false},
                                           {131, 17, 101, true, true},
                                           {2053, 8, 1000, true, false},
                                           {1500, 24, 2003, false, true}}) {
    const at::Tensor target = targets(s.n, s.v);
    const std::vector<at::Tensor> in = {random_tensor({s.n, s.d}, type), random_tensor({s.d, s.v}, type, s.transposed),
                                        random_tensor({s.v}, type)};
    const auto run = [&](Implementation impl) {
      return [&s, &target, impl](const std::vector<at::Tensor>& x) {
        return linear_cross_entropy(x[0], x[1], s.bias ? std::optional(x[2]) : std::nullopt, target, impl);
      };
    };
    const auto fused = evaluate(run(Implementation::fused), in);
    const auto reference = evaluate(run(Implementation::reference), in);
    expect_close(fused, reference, bound, fmt::format("N={} d={} V={}", s.n, s.d, s.v));
  }
}

// Sums over at most a few thousand terms; rounding errors of single terms are 2^-24 and 2^-53.
TEST(LinearCrossEntropy, FusedEqualsReferenceInFloat) {
  compare(at::kFloat, 5e-6);
}
TEST(LinearCrossEntropy, FusedEqualsReferenceInDouble) {
  compare(at::kDouble, 1e-13);
}
// Logits, probabilities and gradients are rounded to 8 bits, 2^-9 each, on both sides; logits of size ~10 turn that
// into errors of a few percent in a probability.
TEST(LinearCrossEntropy, FusedEqualsReferenceInBfloat16) {
  compare(at::kBFloat16, 3e-2);
}

TEST(LinearCrossEntropy, IsTheMeanOverRowsThatCount) {
  const at::Tensor x = at::zeros({3, 2}), w = at::zeros({2, 8});
  const at::Tensor target = at::tensor({4, -1, 0}, at::kLong);
  EXPECT_NEAR(linear_cross_entropy(x, w, {}, target).item<float>(), std::log(8.0), 1e-6);
  EXPECT_EQ(linear_cross_entropy(x, w, {}, at::full({3}, -1, at::kLong)).item<float>(), 0.0F);
}

TEST(LinearCrossEntropy, HugeLogitsStayFinite) {
  const at::Tensor x = at::full({2, 1}, 1e4), w = at::tensor({1.0F, -1.0F}).view({1, 2});
  const at::Tensor target = at::tensor({1, 0}, at::kLong);
  EXPECT_NEAR(linear_cross_entropy(x, w, {}, target).item<float>(), 1e4, 1.0);
}

TEST(LinearCrossEntropy, RefusesWhatDoesNotFit) {
  const at::Tensor target = at::zeros({2}, at::kLong);
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 3}), at::ones({4, 5}), {}, target), Error);
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 4}), at::ones({4, 5}), {}, target + 5), Error);
}

}  // namespace linear_cross_entropy_test
}  // namespace headroom::ops
