// Compares shared and routed heads (MoH) with their equation, and tests the balance loss. combinations_test.cc covers
// gradients, decoding, padding and combinations.

#include "headroom/config/attention_part.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::shared_and_routed_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 6, kHeads = 5, kTokens = 7;

struct Setting {
  std::int64_t shared_heads, top_k;
  std::string name() const { return fmt::format("{} shared, top {}", shared_heads, top_k); }
};
constexpr Setting kSettings[] = {{2, 2}, {2, 3}, {1, 3}, {0, 2}, {4, 1}};

config::AttentionOptions options_of(const Setting& setting, const std::string& projection = "shared_and_routed") {
  return attention_options(
      fmt::format("projection={} n_heads={} d_head=4 shared_heads={} top_k={} switch_coefficient=0.5 position=none",
                  projection, kHeads, setting.shared_heads, setting.top_k));
}

Layer layer_of(const config::AttentionOptions& o) {
  return Layer(o, {.d_model = kWidth, .context_length = kTokens}, at::kDouble, /*noise=*/1.0);
}

// Returns the gates [H] of one token x [d].
at::Tensor gates(const Layer& layer, const Setting& setting, const at::Tensor& x) {
  const at::Tensor p = x.matmul(layer.at("select")).softmax(0);
  const at::Tensor least = std::get<0>(p.sort(0, /*descending=*/true))[setting.top_k - 1];
  const at::Tensor chosen = p * p.ge(least);
  at::Tensor routed = chosen / chosen.sum() * static_cast<double>(setting.top_k);
  if (setting.shared_heads == 0) {
    return routed;
  }
  const at::Tensor mix = x.matmul(layer.at("select_mix")).softmax(0) * 2.0;
  const at::Tensor shared = setting.shared_heads == 1 ? at::ones({1}, at::kDouble)
                                                      : x.matmul(layer.at("select_shared")).softmax(0) *
                                                            static_cast<double>(setting.shared_heads);
  return at::cat({shared * mix[0], routed * mix[1]});
}

// Sums the heads of a dense layer with the same projections, each multiplied by its gates.
at::Tensor written_out(const Layer& layer, const Setting& setting, const at::Tensor& x) {
  const Layer dense = layer_of(options_of(setting, "dense"));
  const at::NoGradGuard no_grad;
  for (const Parameter& p : dense.parameters.all()) {
    p.tensor.copy_(layer.at(p.name));
  }
  at::Tensor sum = at::zeros_like(x);
  for (std::int64_t h = 0; h < kHeads; ++h) {
    dense.at("w_o").zero_();
    dense.at("w_o")[h].copy_(layer.at("w_o")[h]);
    const at::Tensor one = dense.attention({.x = x}, {});
    for (std::int64_t b = 0; b < x.size(0); ++b) {
      for (std::int64_t i = 0; i < x.size(1); ++i) {
        sum[b][i] += gates(layer, setting, x[b][i])[h] * one[b][i];
      }
    }
  }
  return sum;
}

TEST(SharedAndRouted, MatchesItsEquation) {
  for (const Setting& setting : kSettings) {
    const Layer layer = layer_of(options_of(setting));
    at::manual_seed(3);
    const at::Tensor x = at::randn({2, kTokens, kWidth}, at::kDouble);
    EXPECT_LE(relative_error(layer.attention({.x = x}, {}), written_out(layer, setting, x)), 1e-12) << setting.name();
  }
}

// "switch" is E sum_e P_e F_e. The authors' loss counts each of a token's k heads as one, and is thus k times as large.
TEST(SharedAndRouted, TheBalanceLossCountsTheRoutedHeadsOfValidTokens) {
  const Setting setting{2, 2};
  const Layer layer = layer_of(options_of(setting));
  at::manual_seed(3);
  const at::Tensor x = at::randn({2, kTokens, kWidth}, at::kDouble);
  const at::Tensor valid = at::arange(2 * kTokens).view({2, kTokens}).lt(10);
  std::map<std::string, at::Tensor> losses;
  const Context context{.losses = &losses};
  const AttentionInput input{.x = x, .valid_queries = valid};
  layer.attention(input, context);
  ASSERT_EQ(losses.size(), 1U);
  const std::int64_t n_routed = kHeads - setting.shared_heads;
  const at::Tensor p = x.view({-1, kWidth}).narrow(0, 0, 10).matmul(layer.at("select")).softmax(-1);
  const at::Tensor counts = at::bincount(std::get<1>(p.topk(setting.top_k, -1)).flatten(), {}, n_routed);
  const at::Tensor balance = (p.mean(0) * counts / 10.0).sum() * static_cast<double>(n_routed);
  EXPECT_NEAR((losses.at("switch") * static_cast<double>(setting.top_k)).item<double>(), balance.item<double>(), 1e-12);
  const auto gradient = [&](const at::Tensor& loss) {
    return torch::autograd::grad({loss}, {layer.at("select")}, {}, /*retain_graph=*/true)[0];
  };
  EXPECT_LE(relative_error(gradient(losses.at("switch")) * static_cast<double>(setting.top_k), gradient(balance)),
            1e-12);
  EXPECT_GT(gradient(balance).abs().max().item<double>(), 1e-3);
}

TEST(SharedAndRouted, HasOneLossAndAllHeads) {
  const config::AttentionOptions o = options_of({2, 2});
  ASSERT_EQ(o.projection->balance_losses(o).size(), 1U);
  EXPECT_EQ(o.projection->balance_losses(o)[0].name, "switch");
  EXPECT_EQ(o.projection->balance_losses(o)[0].coefficient, 0.5);
  EXPECT_EQ(o.computed_heads(), kHeads);
  EXPECT_EQ(o.projection->heads_text(o), "5 (2 shared, 2 of 3 routed)");
}

}  // namespace headroom::nn::shared_and_routed_test
