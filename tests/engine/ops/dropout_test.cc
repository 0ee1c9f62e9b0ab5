#include "headroom/ops/dropout.h"

#include <cmath>

#include "gradients.h"
#include "headroom/core/error.h"

namespace headroom::ops::dropout_test {

TEST(Dropout, DropsTheRequestedShareEverywhere) {
  for (const double p : {0.1, 0.5, 0.9}) {
    const at::Tensor y = ops::dropout(at::ones({1000, 1000}), {.p = p, .seed = 7});
    const auto far = [&](const at::Tensor& share, double n) {
      return (share - (1.0 - p)).abs().max().item<double>() / std::sqrt(p * (1.0 - p) / n);
    };
    const at::Tensor kept = y.ne(0).to(at::kDouble);
    EXPECT_LT(far(kept.mean(), 1e6), 5.0);   // in standard deviations
    EXPECT_LT(far(kept.mean(0), 1e3), 6.0);  // the worst of 1000 columns
    EXPECT_LT(far(kept.mean(1), 1e3), 6.0);  // the worst of 1000 rows
    EXPECT_NEAR(y.max().item<double>(), 1.0 / (1.0 - p), 1e-5);
    // Neighbouring elements are independent, and so is an element with the next seed.
    const at::Tensor other = ops::dropout(at::ones({1000, 1000}), {.p = p, .seed = 8}).ne(0).to(at::kDouble);
    const double both = (1.0 - p) * (1.0 - p), deviation = std::sqrt(both * (1.0 - both) / 1e6);
    EXPECT_LT(std::abs((kept * other).mean().item<double>() - both) / deviation, 5.0);
    EXPECT_LT(std::abs((kept * kept.roll(1, 1)).mean().item<double>() - both) / deviation, 5.0);
  }
}

TEST(Dropout, ThreadsDoNotChangeTheResult) {
  const at::Tensor x = at::randn({333, 1001});
  testing::expect_threads_change_nothing([](const auto& in) { return ops::dropout(in[0], {.p = 0.2, .seed = 3}); }, {x},
                                         "dropout");
}

TEST(Dropout, RefusesUnsupportedInputs) {
  EXPECT_THROW(ops::dropout(at::ones({2}), {.p = 1.0}), Error);
  EXPECT_THROW(ops::dropout(at::ones({2}, at::kDouble), {.p = 0.5}, Implementation::fused), UserError);
}

}  // namespace headroom::ops::dropout_test
