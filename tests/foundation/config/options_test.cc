#include <gtest/gtest.h>

#include "complaint.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/config/part_options.h"

namespace headroom::config::options_test {

TEST(AttentionOptionsTest, RotatingChannels) {
  const auto channels = [](std::int64_t d_head, double fraction) {
    AttentionOptions options;
    options.d_head = d_head;
    options.of<PositionOptions>().rope_fraction = fraction;
    return options.projection->rotary_channels(options);
  };
  EXPECT_EQ(channels(64, 1.0), 64);
  EXPECT_EQ(channels(41, 0.5), 20);
  EXPECT_EQ(channels(205, 0.5), 102);
  EXPECT_EQ(channels(60, 0.1), 6);
  EXPECT_EQ(channels(1, 1.0), 1);
}

std::vector<std::int64_t> windows_of(const ModelOptions& model) {
  std::vector<std::int64_t> windows;
  for (std::int64_t layer = 0; layer < model.n_layers; ++layer) {
    windows.push_back(model.of_layer(layer).attention.window);
  }
  return windows;
}

TEST(Layers, FollowTheWindowPattern) {
  const auto windows = [](const char* pattern, std::int64_t n_layers) {
    ModelOptions model;
    model.n_layers = n_layers;
    model.attention.window = 256;
    model.attention.window_pattern = pattern;
    return windows_of(model);
  };
  using Windows = std::vector<std::int64_t>;
  EXPECT_EQ(windows("1:0", 3), (Windows{256, 256, 256}));
  EXPECT_EQ(windows("0:1", 3), (Windows{0, 0, 0}));
  EXPECT_EQ(windows("1:1", 5), (Windows{256, 0, 256, 0, 256}));
  EXPECT_EQ(windows("3:1", 8), (Windows{256, 0, 256, 256, 256, 0, 256, 256}));
  EXPECT_EQ(windows("7:1", 10), (Windows{256, 0, 256, 256, 256, 256, 256, 256, 256, 0}));
  EXPECT_EQ(windows("2:2", 5), (Windows{256, 0, 0, 256, 256}));
  EXPECT_EQ(windows_of(ModelOptions()), Windows(4, 0));
  EXPECT_EQ(subject_of("x: " + complaint_of([&] { windows("x", 1); })), "x: model.attention.window_pattern");
}

TEST(Layers, DifferInTheKeysOfTheirEntry) {
  ModelOptions model;
  model.n_layers = 7;
  model.attention.window = 9;
  model.layers = {{.repeat = 2, .attention = {{"window", "256"}}, .mlp = {}},
                  {.repeat = 1, .attention = {{"projection", "\"experts\""}}, .mlp = {{"kind", "\"experts\""}}},
                  {.repeat = 1, .attention = {{"window", "256"}}, .mlp = {}}};
  EXPECT_EQ(windows_of(model), (std::vector<std::int64_t>{256, 256, 9, 256, 256, 256, 9}));
  EXPECT_EQ(model.of_layer(2).attention.projection, "experts");
  EXPECT_EQ(model.of_layer(2).mlp.kind, MlpKind::experts);
  EXPECT_EQ(model.of_layer(3).attention.projection, "dense");
  EXPECT_TRUE(model.of_layer(2).layers.empty());
  const auto kinds = model.kinds_of_layers(7);
  ASSERT_EQ(kinds.size(), 2U);  // the first and the last entry are equal
  EXPECT_EQ(kinds[0].second, 5);
  EXPECT_EQ(kinds[1].second, 2);
  EXPECT_TRUE(model.routes());
  EXPECT_EQ(model.balance_losses().size(), 1U);
  EXPECT_EQ(subject_of(complaint_of([&] { model.require_no_pattern("x"); })), "x: model.layers");
}

}  // namespace headroom::config::options_test
