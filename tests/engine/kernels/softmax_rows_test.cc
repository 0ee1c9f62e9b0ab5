// Tests softmax and cross-entropy rows with every instruction set of this CPU.
#include "engine/kernels/cpu/attention/softmax_rows.h"

#include <cmath>

#include "kernel_testing.h"

namespace headroom::kernels::softmax_rows_test {

using testing::expect_guard_untouched;
using testing::guarded;
using testing::inner;
using testing::kSizes;
using testing::on_every_target;

// `with_terms` adds position scores and a bias.
void expect_softmax(std::int64_t n, float scale, bool with_terms) {
  const std::int64_t low = n / 5, high = n - n / 7;
  const at::Tensor s = at::randn({n}), d_p = at::randn({n});
  const at::Tensor position = with_terms ? at::randn({n}) : at::zeros({n});
  at::Tensor bias = at::zeros({n});
  if (with_terms && high - low > 2) {
    bias[low + 1] = -std::numeric_limits<float>::infinity();
  }
  const at::Tensor scores = guarded(s), positions = guarded(position), biases = guarded(bias), grads = guarded(d_p);
  const ScoreRow row{
      low, high, n, scale, with_terms ? inner(positions) : nullptr, with_terms ? inner(biases) : nullptr};
  float sum = 0.0F;
  const float log_sum = exp_row(row, inner(scores), &sum);

  const at::Tensor exact = ((s + position).to(at::kDouble) * scale + bias).narrow(0, low, high - low);
  EXPECT_NEAR(log_sum, exact.logsumexp(at::IntArrayRef{0}).item<double>(), 2e-6);
  const at::Tensor p = at::zeros({n}, at::kDouble);
  p.narrow(0, low, high - low).copy_(exact.softmax(0));
  const at::Tensor got = scores.narrow(0, 16, n).to(at::kDouble) / sum;
  EXPECT_LE((got - p).abs().max().item<double>(), 1e-6) << n;

  const at::Tensor again = guarded(s), weights = guarded(s);
  exp_row_backward(row, log_sum, 0.21F, inner(again), inner(grads));
  probability_row(row, log_sum, inner(weights));
  const at::Tensor expected = p * (d_p.to(at::kDouble) - 0.21) * scale;
  EXPECT_LE((again.narrow(0, 16, n).to(at::kDouble) - p).abs().max().item<double>(), 2e-6) << n;
  EXPECT_TRUE(weights.narrow(0, 16, n).equal(again.narrow(0, 16, n))) << n;
  EXPECT_LE((grads.narrow(0, 16, n).to(at::kDouble) - expected).abs().max().item<double>(), 4e-6) << n;
  for (const at::Tensor& t : {scores, again, grads, weights}) {
    expect_guard_untouched(t, "row");
  }
}

TEST(SoftmaxRows, ForwardAndBackwardMatchTheirFormulas) {
  at::manual_seed(1);
  on_every_target([] {
    for (const std::int64_t n : kSizes) {
      for (const float scale : {0.37F, 1.0F, -0.37F}) {
        expect_softmax(n, scale, true);
        expect_softmax(n, scale, false);
      }
    }
  });
}

// The polynomial alone has an error of at most 0.05 ulp. Intermediate roundings increase the error to 1.3 ulp.
TEST(SoftmaxRows, ExponentialsAreAccurateToTwoUlp) {
  on_every_target([] {
    const at::Tensor x = at::arange(-87.0, -1.0, 1.0 / 1024, at::kFloat).add_(at::rand({1}));
    const at::Tensor exact = x.to(at::kDouble).exp(), got = x.clone();
    const std::int64_t n = x.numel();
    probability_row({0, n, n, 1.0F, nullptr, nullptr}, 0.0F, got.mutable_data_ptr<float>());
    const at::Tensor unit = exact.log2().floor().sub(23).exp2();
    EXPECT_LE(((got.to(at::kDouble) - exact) / unit).abs().max().item<double>(), 1.35);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    float none[3] = {-87.1F, -1e30F, -kInfinity};
    probability_row({0, 3, 3, 1.0F, nullptr, nullptr}, 0.0F, none);
    EXPECT_TRUE(none[0] == 0.0F && none[1] == 0.0F && none[2] == 0.0F);
  });
}

// Floats of this size are at least 2^26 apart, so a rounding error in score * scale exceeds the range of exp(). Weights
// must stay in [0, 1].
TEST(SoftmaxRows, HugeScoresHaveWeightsBetweenZeroAndOne) {
  at::manual_seed(2);
  on_every_target([] {
    for (const std::int64_t n : kSizes) {
      const at::Tensor s = at::randn({n}).mul_(1e15), scores = guarded(s), again = guarded(s), d_p = guarded(s / 1e15);
      const ScoreRow row{0, n, n, 0.37F, nullptr, nullptr};
      float sum = 0.0F;
      const float log_sum = exp_row(row, inner(scores), &sum);
      EXPECT_EQ(sum, 1.0F);
      EXPECT_EQ(inner(scores)[s.argmax().item<std::int64_t>()], 1.0F);
      exp_row_backward(row, log_sum, 0.1F, inner(again), inner(d_p));
      const at::Tensor p = again.narrow(0, 16, n);
      EXPECT_TRUE((p >= 0).all().item<bool>() && (p <= 1).all().item<bool>()) << n;
      EXPECT_TRUE(d_p.narrow(0, 16, n).isfinite().all().item<bool>()) << n;
    }
  });
}

TEST(SoftmaxRows, AFullyMaskedRowIsZero) {
  on_every_target([] {
    float scores[3] = {1, 2, 3}, sum = 1;
    const float bias[3] = {-INFINITY, -INFINITY, -INFINITY};
    const ScoreRow row{0, 3, 3, 1.0F, nullptr, bias};
    const float log_sum = exp_row(row, scores, &sum);
    EXPECT_EQ(sum, 0.0F);
    EXPECT_EQ(scores[0] + scores[1] + scores[2], 0.0F);
    float again[3] = {1, 2, 3}, grads[3] = {1, 1, 1};
    exp_row_backward(row, log_sum, 0.0F, again, grads);
    EXPECT_EQ(again[0] + again[1] + again[2], 0.0F);
    EXPECT_EQ(grads[0] + grads[1] + grads[2], 0.0F);
  });
}

TEST(SoftmaxRows, CrossEntropyAndItsGradient) {
  at::manual_seed(2);
  on_every_target([&] {
    for (const std::int64_t n : kSizes) {
      const at::Tensor logits = at::randn({n}) * 5, bias = at::randn({n});
      const at::Tensor row = guarded(logits), biases = guarded(bias);
      const std::int64_t target = n / 2;
      const float loss = cross_entropy_row(inner(row), inner(biases), n, target, 0.5F);
      const at::Tensor exact = (logits + bias).to(at::kDouble).log_softmax(0);
      EXPECT_NEAR(loss, -exact[target].item<double>(), 4e-6);
      at::Tensor expected = exact.exp();
      expected[target] -= 1.0;
      EXPECT_LE((row.narrow(0, 16, n).to(at::kDouble) - 0.5 * expected).abs().max().item<double>(), 1e-6) << n;
      expect_guard_untouched(row, "logits");
      EXPECT_EQ(cross_entropy_row(inner(row), nullptr, n, -1, 1.0F), 0.0F);
      EXPECT_EQ(row.narrow(0, 16, n).abs().max().item<float>(), 0.0F);
    }
  });
}

}  // namespace headroom::kernels::softmax_rows_test
