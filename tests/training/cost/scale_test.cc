#include "training/cost/match.h"

#include <gtest/gtest.h>

#include "headroom/config/part_options.h"
#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost::scale_test {

TEST(Scaled, WidthsByTheFactorLayersByItsRoot) {
  const config::Config base = recipe("demo/dense_h8");
  const config::Config twice = *scaled(base, 2.0), same = *scaled(base, 1.0);
  EXPECT_EQ(config::flatten(same), config::flatten(base));
  EXPECT_EQ(twice.model.d_model, 2 * base.model.d_model);
  EXPECT_EQ(twice.model.mlp.d_hidden, 2 * base.model.mlp.d_hidden);
  EXPECT_EQ(twice.model.attention.d_head, 2 * base.model.attention.d_head);
  EXPECT_EQ(twice.model.attention.n_heads, base.model.attention.n_heads);
  EXPECT_EQ(twice.model.n_layers, 6);  // 4 * sqrt(2)
}

TEST(Scaled, LatentWidthsToo) {
  const config::Config base = recipe("zoo/mla");
  const auto rank = [](const config::Config& config) {
    return config.model.attention.of<config::LatentOptions>().kv_rank;
  };
  EXPECT_EQ(rank(*scaled(base, 2.0)), 2 * rank(base));
}

// Parameters times 20 tokens each times the multiply-accumulates per token must equal what the time allows.
TEST(LargestWithin, IsTheLargestThatFits) {
  const config::Config base = recipe("demo/switchhead_h2");
  const auto needed = [](const config::Config& config) {
    return static_cast<double>(kTokensPerParameter * count_parameters(config.model)) * training_macs_per_token(config);
  };
  const config::Config found = *largest_within(base, needed(base));
  EXPECT_EQ(config::flatten(found), config::flatten(base));
  EXPECT_LT(needed(*largest_within(base, 0.999 * needed(base))), needed(base));
  const double more = 30.0 * needed(base);
  const config::Config larger = *largest_within(base, more);
  EXPECT_LE(needed(larger), more);
  EXPECT_GT(needed(larger), 0.8 * more);
  EXPECT_FALSE(largest_within(base, 1.0));
  EXPECT_FALSE(largest_within(base, 1e30));
}

}  // namespace headroom::cost::scale_test
