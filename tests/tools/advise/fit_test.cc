#include "tools/advise/fit.h"

#include <gtest/gtest.h>

#include "training/cost/cost.h"

namespace headroom::advise {
namespace fit_test {

using Sizes = std::vector<std::int64_t>;

TEST(Fit, SizeHasTwentyTokensForEachParameterThatATokenMeets) {
  const std::vector<double> forward = {1e5, 3e5, 1e6, 3e6};
  constexpr double kLongText = 1e12;
  for (std::size_t i = 0; i < forward.size(); ++i) {
    const double macs = 3.0 * forward[i] * kTokensPerParameter * forward[i];
    EXPECT_EQ(best_size(forward, macs, kLongText), i);
    EXPECT_EQ(best_size(forward, 1.2 * macs, kLongText), i);
  }
  EXPECT_EQ(best_size(forward, 1.0, kLongText), 0u) << "the smallest there is";
  EXPECT_EQ(best_size(forward, 1e30, kLongText), 3u) << "the largest there is";
}

TEST(Fit, RepeatedTextCountsLessEachTime) {
  EXPECT_EQ(effective_tokens(50.0, 100.0), 50.0);
  EXPECT_EQ(effective_tokens(100.0, 100.0), 100.0);
  EXPECT_NEAR(effective_tokens(400.0, 100.0), 372.6, 0.1) << "four readings: nearly as good as new";
  EXPECT_NEAR(effective_tokens(1e9, 100.0), 1640.0, 0.1) << "never more than 16.4 readings";
}

TEST(Fit, AShortTextFavoursALargerModelOverMoreEpochs) {
  const std::vector<double> forward = {1e5, 3e5, 1e6, 3e6};
  const double macs = 3.0 * 3e5 * kTokensPerParameter * 3e5;  // 6e6 tokens of the second
  EXPECT_EQ(best_size(forward, macs, 6e6), 1u);
  EXPECT_EQ(best_size(forward, macs, 6e6 / 20.0), 1u);
  EXPECT_EQ(best_size(forward, macs, 6e6 / 60.0), 2u);
  EXPECT_EQ(best_size(forward, macs, 10.0), 3u) << "all read it too often: the largest";
}

TEST(Fit, TheSmallestBatchThatIsAboutAsFastAsTheFastest) {
  EXPECT_EQ(best_batch({50.0, 79.0, 81.0, 100.0, 95.0}), 2u);
  EXPECT_EQ(best_batch({100.0, 100.0}), 0u);
  EXPECT_EQ(best_batch({10.0}), 0u);
}

TEST(Fit, VocabulariesDoubleAsFarAsTheTextAllows) {
  EXPECT_EQ(vocabulary_sizes(8000, 1e9), (Sizes{2000, 4000, 8000, 16000}));
  EXPECT_EQ(vocabulary_sizes(8000, 1.1e6), (Sizes{500, 1000, 2000, 4000})) << "200 bytes for each piece";
  EXPECT_EQ(vocabulary_sizes(8000, 1.7e6), (Sizes{1000, 2000, 4000, 8000}));
  EXPECT_EQ(vocabulary_sizes(1000, 1e9), (Sizes{500, 1000, 2000}));
  EXPECT_EQ(vocabulary_sizes(8000, 3000.0), Sizes{});
  EXPECT_EQ(vocabulary_sizes(300, 1e9), (Sizes{300, 600}));
}

TEST(Fit, ScaledModelsGrowWithTheirFactorAndKeepTheirHeads) {
  config::Config config = config::load_config("zoo/dense");
  const config::Config same = scaled(config, 1.0).value();
  EXPECT_EQ(config::to_toml(same), config::to_toml(config));
  double before = 0.0;
  for (const double factor : size_factors()) {
    const config::Config other = scaled(config, factor).value();
    EXPECT_GT(forward_macs(other), before);
    EXPECT_EQ(other.model.attention.n_heads, config.model.attention.n_heads);
    EXPECT_EQ(other.model.context_length, config.model.context_length);
    before = forward_macs(other);
  }
  const config::Config twice = scaled(config, 2.0).value();
  EXPECT_EQ(twice.model.d_model, 2 * config.model.d_model);
  EXPECT_EQ(twice.model.mlp.d_hidden, 2 * config.model.mlp.d_hidden);
  EXPECT_EQ(twice.model.attention.d_head, 2 * config.model.attention.d_head);
  EXPECT_EQ(twice.model.n_layers, 6) << "4 times the root of 2";
  config.model.d_model = 64;
  EXPECT_FALSE(scaled(config, 0.25)) << "16 channels";
}

TEST(Fit, ForwardMacsAreAThirdOfAStepsForEachToken) {
  const config::Config config = config::load_config("zoo/dense");
  const double step = static_cast<double>(cost::executed_cost(config.model, 1).step_macs);
  EXPECT_NEAR(3.0 * forward_macs(config) * static_cast<double>(config.model.context_length) / step, 1.0, 1e-9);
}

TEST(Fit, RoundsDownToTwoDigits) {
  EXPECT_EQ(rounded_down(1234.9), 1200);
  EXPECT_EQ(rounded_down(99.9), 99);
  EXPECT_EQ(rounded_down(7.5), 7);
  EXPECT_EQ(rounded_down(100000.0), 100000);
}

}  // namespace fit_test
}  // namespace headroom::advise
