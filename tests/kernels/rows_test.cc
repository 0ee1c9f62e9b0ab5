// Every kernel on every instruction set that this CPU has, over sizes around the vectors' widths.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "headroom/kernels/cpu/softmax_rows.h"
#include "headroom/kernels/cpu/tile_product.h"

namespace headroom::kernels {
namespace rows_test {

// Runs `body` once with each instruction set alone enabled.
template <class Body>
void on_every_target(const Body& body) {
  std::int64_t left = hwy::SupportedTargets();
  while (left != 0) {
    const std::int64_t target = left & -left;
    left &= ~target;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    SCOPED_TRACE(softmax_rows_target());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

at::Tensor guarded(const at::Tensor& values) {  // NaN on both sides: reading or writing beyond shows
  const at::Tensor wide = at::full({values.numel() + 32}, std::numeric_limits<float>::quiet_NaN());
  wide.narrow(0, 16, values.numel()).copy_(values);
  return wide;
}

float* inner(const at::Tensor& wide) {
  return wide.mutable_data_ptr<float>() + 16;
}

void expect_guard_untouched(const at::Tensor& wide, const char* what) {
  const std::int64_t n = wide.numel() - 32;
  EXPECT_TRUE(wide.narrow(0, 0, 16).isnan().all().item<bool>()) << what;
  EXPECT_TRUE(wide.narrow(0, 16 + n, 16).isnan().all().item<bool>()) << what;
}

const std::vector<std::int64_t> kSizes = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 67, 130};

TEST(SoftmaxRows, ForwardAndBackwardAreTheirFormulas) {
  at::manual_seed(1);
  on_every_target([&] {
    for (const std::int64_t n : kSizes) {
      const std::int64_t low = n / 5, high = n - n / 7;
      const at::Tensor s = at::randn({n}), position = at::randn({n}), d_p = at::randn({n});
      at::Tensor bias = at::zeros({n});
      if (high - low > 2) {
        bias[low + 1] = -std::numeric_limits<float>::infinity();
      }
      const at::Tensor scores = guarded(s), positions = guarded(position), biases = guarded(bias), grads = guarded(d_p);
      const ScoreRow row{low, high, n, 0.37F, inner(positions), inner(biases)};
      float sum = 0.0F;
      const float log_sum = exp_row(row, inner(scores), &sum);

      const at::Tensor exact = ((s + position).to(at::kDouble) * 0.37 + bias).narrow(0, low, high - low);
      EXPECT_NEAR(log_sum, exact.logsumexp(at::IntArrayRef{0}).item<double>(), 2e-6);
      const at::Tensor p = at::zeros({n}, at::kDouble);
      p.narrow(0, low, high - low).copy_(exact.softmax(0));
      const at::Tensor got = scores.narrow(0, 16, n).to(at::kDouble) / sum;
      EXPECT_LE((got - p).abs().max().item<double>(), 1e-6) << n;

      const at::Tensor again = guarded(s);
      exp_row_backward(row, log_sum, 0.21F, inner(again), inner(grads));
      const at::Tensor expected = p * (d_p.to(at::kDouble) - 0.21) * 0.37;
      EXPECT_LE((again.narrow(0, 16, n).to(at::kDouble) - p).abs().max().item<double>(), 2e-6) << n;
      EXPECT_LE((grads.narrow(0, 16, n).to(at::kDouble) - expected).abs().max().item<double>(), 4e-6) << n;
      for (const at::Tensor& t : {scores, again, grads}) {
        expect_guard_untouched(t, "row");
      }
    }
  });
}

TEST(SoftmaxRows, ABlindRowIsAllZero) {
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

TEST(TileProduct, EqualsTheLibraryProduct) {
  at::manual_seed(3);
  on_every_target([&] {
    for (const std::int64_t m : {1, 3, 4, 5, 64}) {
      for (const std::int64_t n : kSizes) {
        for (const std::int64_t k : {1, 2, 41}) {
          for (const bool add : {false, true}) {
            const at::Tensor a = at::randn({m, k + 3}), b = at::randn({k, n + 2}), c = at::randn({m, n + 1});
            const at::Tensor product = a.narrow(1, 0, k).to(at::kDouble).mm(b.narrow(1, 0, n).to(at::kDouble));
            const at::Tensor expected = add ? product + c.narrow(1, 0, n) : product;
            const at::Tensor beyond = c.select(1, n).clone();
            tile_product({m, n, k, k + 3, n + 2, n + 1, add}, a.const_data_ptr<float>(), b.const_data_ptr<float>(),
                         c.mutable_data_ptr<float>());
            // Sums of k + 1 products of size ~1.
            EXPECT_LE((c.narrow(1, 0, n) - expected).abs().max().item<double>(), 1e-6 * static_cast<double>(k + 3));
            EXPECT_TRUE(at::equal(c.select(1, n), beyond)) << "column beyond was written";
          }
        }
      }
    }
  });
  tile_product_done();
}

}  // namespace rows_test
}  // namespace headroom::kernels
