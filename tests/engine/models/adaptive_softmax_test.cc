#include "engine/models/vocabulary_layers.h"

#include "engine/ops/gradients.h"
#include "one_thread.h"

namespace headroom::models::adaptive_softmax_test {

using testing::evaluate;
using testing::expect_close;
using testing::relative_error;

AdaptiveSoftmax random_softmax(std::int64_t d, std::int64_t v, std::vector<std::int64_t> cutoffs) {
  const auto n = static_cast<std::int64_t>(cutoffs.size());
  return {.w = at::randn({d, v}, at::kDouble),
          .b = at::randn({v}, at::kDouble),
          .w_cluster = at::randn({d, n}, at::kDouble),
          .b_cluster = at::randn({n}, at::kDouble),
          .cutoffs = std::move(cutoffs)};
}

TEST(AdaptiveSoftmax, IsADistribution) {
  at::manual_seed(1);
  const AdaptiveSoftmax softmax = random_softmax(3, 17, {4, 9, 16});
  const at::Tensor p = softmax.log_probabilities(at::randn({5, 3}, at::kDouble), {}).exp();
  EXPECT_LE((p.sum(1) - 1.0).abs().max().item<double>(), 1e-14);
}

TEST(AdaptiveSoftmax, LikelihoodsAndGradientsMatchTheDistribution) {
  for (const std::vector<std::int64_t>& targets :
       std::vector<std::vector<std::int64_t>>{{0, 3, 4, 8, 9, 15, 16}, {1, 1}, {16}}) {
    at::manual_seed(2);
    const AdaptiveSoftmax like = random_softmax(3, 17, {4, 9, 16});
    const at::Tensor target = at::tensor(targets, at::kLong);
    const auto with = [&](const std::vector<at::Tensor>& x) {
      AdaptiveSoftmax softmax = like;
      softmax.w = x[1];
      softmax.b = x[2];
      softmax.w_cluster = x[3];
      softmax.b_cluster = x[4];
      return softmax;
    };
    const std::vector<at::Tensor> leaves = {at::randn({target.size(0), 3}, at::kDouble), like.w, like.b, like.w_cluster,
                                            like.b_cluster};
    expect_close(evaluate([&](const auto& x) { return with(x).negative_log_likelihood(x[0], target, {}); }, leaves),
                 evaluate(
                     [&](const auto& x) {
                       return -with(x).log_probabilities(x[0], {}).gather(1, target.unsqueeze(1)).squeeze(1);
                     },
                     leaves),
                 1e-13, "adaptive softmax");
  }
}

}  // namespace headroom::models::adaptive_softmax_test
