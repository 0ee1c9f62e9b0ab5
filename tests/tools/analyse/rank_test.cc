#include "tools/analyse/measures.h"

#include <gtest/gtest.h>

#include "small_model.h"

namespace headroom::analyse::rank_test {

TEST(Rank, OfKnownMatrices) {
  const at::Tensor column = at::rand({7, 1}, at::kDouble) + 0.1, row = at::rand({1, 7}, at::kDouble) + 0.1;
  const at::Tensor all = at::stack({column.mm(row), at::eye(7, at::kDouble), at::full({7, 7}, 1.0 / 7.0, at::kDouble),
                                    at::diag(at::tensor({1., 1e-3, 2e-6, 5e-7, 0., 0., 0.}, at::kDouble))});
  EXPECT_TRUE(matrix_ranks(all, 1e-6).equal(at::tensor({1, 7, 1, 3}, at::kLong)));
}

// Queries of 0 give uniform weights; without a causal mask the matrices have rank 1.
TEST(Rank, ZeroQueriesHaveRankOne) {
  const store::OpenedModel opened = small::small_model("kind=masked_language_model");
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    if (p.name.ends_with("w_q")) {
      p.tensor.zero_();
    }
  }
  const Findings rank = small::found(opened, "rank", "every key alike");
  EXPECT_EQ(rank.metrics.at("layers").at("layer0.attention").at("largest"), 1);
  EXPECT_EQ(rank.metrics.at("layers").at("layer1.attention").at("mean"), 1.0);
}

// Compares the ranks of all samples with eigenvalues of the recorded weights.
TEST(Rank, MatchesTheWeights) {
  const store::OpenedModel opened = small::small_model("");
  const std::string text = "a text of two chunks....";  // 24 bytes
  const Findings rank = small::found(opened, "rank", text);
  const at::Tensor ranks = rank.tensors.at("layer1.attention");
  ASSERT_EQ(ranks.sizes().vec(), (std::vector<std::int64_t>{2, 2}));
  for (std::int64_t sample = 0; sample < 2; ++sample) {
    const nn::Recorder values = small::recorded(opened, text.substr(static_cast<std::size_t>(sample) * 12, 12));
    const at::Tensor p = values.at("layer1.attention.probs")[0].to(at::kDouble);
    for (std::int64_t h = 0; h < 2; ++h) {
      const at::Tensor squares = at::linalg_eigvalsh(p[h].mm(p[h].t()));
      // Squared singular values have half the digits, which do not resolve values near the threshold.
      EXPECT_LE(squares.ge(1e-10).sum().item<std::int64_t>(), ranks[sample][h].item<std::int64_t>());
      EXPECT_GE(squares.ge(-1e-14).sum().item<std::int64_t>(), ranks[sample][h].item<std::int64_t>());
    }
  }
}

TEST(Rank, TakesAsManySamplesAsRequested) {
  const store::OpenedModel opened = small::small_model("");
  const Findings rank = small::found(opened, "rank", std::string(20 * 12, 'a'), {.samples = 15});
  EXPECT_EQ(rank.tensors.at("layer0.attention").sizes().vec(), (std::vector<std::int64_t>{15, 2}));
  EXPECT_EQ(rank.metrics.at("layers").at("layer0.attention").at("matrices"), 30);
  EXPECT_THROW(small::found(opened, "maps", "a text", {.samples = 15}), UserError) << "maps have one sample";
}

}  // namespace headroom::analyse::rank_test
