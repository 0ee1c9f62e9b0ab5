// Compares Gated DeltaNet layers with their equation, token by token.

#include "headroom/config/attention_part.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::gated_delta_test {

using config::AttentionOptions;
using testing::relative_error;

constexpr std::int64_t kWidth = 6, kHeads = 4;

AttentionOptions options(std::int64_t key_heads = 2, std::int64_t d_value = 5, std::int64_t taps = 4) {
  return attention_options(fmt::format(
      "n_heads={} d_head=3 position=none score=gated_delta delta_key_heads={} delta_d_value={} delta_conv_width={}",
      kHeads, key_heads, d_value, taps));
}

Layer small_layer(const AttentionOptions& o, at::ScalarType type = at::kDouble) {
  return Layer(o, {.d_model = kWidth, .context_length = 200}, type, /*noise=*/0.3);
}

at::Tensor swish(const at::Tensor& x) {
  return x / (1.0 + (-x).exp());
}

// Returns silu(sum_j w_j x_{t-c+1+j}) [B, T, H, e] of the projection x W.
at::Tensor convolved(const at::Tensor& x, const at::Tensor& matrix, const at::Tensor& w) {
  const at::Tensor tokens = at::einsum("btd,dhe->bthe", {x, matrix});
  at::Tensor sum = at::zeros_like(tokens);
  for (std::int64_t t = 0; t < x.size(1); ++t) {
    for (std::int64_t back = 0; back < w.size(2) && back <= t; ++back) {
      sum.select(1, t).add_(tokens.select(1, t - back) * w.select(2, w.size(2) - 1 - back));
    }
  }
  return swish(sum);
}

at::Tensor unit(const at::Tensor& x) {
  return x / (x.square().sum(-1, true) + 1e-6).sqrt();
}

at::Tensor by_hand(const Layer& layer, const AttentionOptions& o, const at::Tensor& x) {
  const std::int64_t group = o.n_heads / o.score->projected_heads(o, 'k');
  const at::Tensor q = unit(convolved(x, layer.at("w_q"), layer.at("conv_q"))) / std::sqrt(3.0);
  const at::Tensor k = unit(convolved(x, layer.at("w_k"), layer.at("conv_k")));
  const at::Tensor v = convolved(x, layer.at("w_v"), layer.at("conv_v"));
  const at::Tensor beta = x.matmul(layer.at("w_beta")).sigmoid();
  const at::Tensor decay =
      (-layer.at("a_log").exp() * (1.0 + (x.matmul(layer.at("w_decay")) + layer.at("dt_bias")).exp()).log()).exp();
  const at::Tensor z = at::einsum("btd,dhe->bthe", {x, layer.at("w_z")});
  at::Tensor y = at::zeros_like(x);
  for (std::int64_t b = 0; b < x.size(0); ++b) {
    for (std::int64_t h = 0; h < o.n_heads; ++h) {
      at::Tensor state = at::zeros({o.d_head, v.size(3)}, at::kDouble);
      for (std::int64_t t = 0; t < x.size(1); ++t) {
        const at::Tensor key = k[b][t][h / group];
        state = decay[b][t][h] * state;
        state = state + at::outer(key, beta[b][t][h] * (v[b][t][h] - state.t().mv(key)));
        const at::Tensor o_t = state.t().mv(q[b][t][h / group]);
        const at::Tensor normed = o_t / (o_t.square().mean() + o.qk_norm_epsilon).sqrt() * layer.at("o_norm");
        y[b][t] += (normed * swish(z[b][t][h])).matmul(layer.at("w_o")[h]);
      }
    }
  }
  return y;
}

TEST(GatedDelta, MatchesItsEquation) {
  const at::NoGradGuard no_grad;
  for (const std::int64_t taps : {1, 2, 4}) {
    for (const std::int64_t key_heads : {0, 1, 2}) {
      at::manual_seed(taps);
      const AttentionOptions o = options(key_heads, key_heads == 1 ? 0 : 5, taps);
      const Layer layer = small_layer(o);
      const at::Tensor x = at::randn({2, 67, kWidth}, at::kDouble);
      EXPECT_LE(relative_error(layer.attention({.x = x}, {}), by_hand(layer, o, x)), 1e-13)
          << key_heads << " key heads, " << taps << " taps";
    }
  }
}

TEST(GatedDelta, DecodesFromItsStateOnly) {
  const at::NoGradGuard no_grad;
  const AttentionOptions o = options();
  const Layer layer = small_layer(o);
  const at::Tensor x = at::randn({2, 140, kWidth}, at::kDouble), whole = layer.attention({.x = x}, {});
  RowCaches caches(layer.attention, 2);
  EXPECT_LE(relative_error(caches.read_all(layer.attention, x, {2, 1, 66, 64}), whole), 1e-12);
  // The state has H e w elements. The convolutions keep 3 inputs of 2 heads of q and k and 4 heads of v.
  EXPECT_EQ(caches.elements(), 4 * 3 * 5 + 3 * (2 * 2 * 3 + 4 * 5));
}

// A padding token counts as x = 0; the convolution and the decay still include it.
TEST(GatedDelta, PaddingTokensAreZero) {
  const at::NoGradGuard no_grad;
  const AttentionOptions o = options();
  const Layer layer = small_layer(o);
  const at::Tensor x = at::randn({2, 9, kWidth}, at::kDouble), valid = at::ones({2, 9}, at::kBool);
  valid[0].narrow(0, 0, 3).fill_(false);
  valid[1].narrow(0, 5, 2).fill_(false);
  const at::Tensor y = layer.attention({.x = x, .valid_keys = valid}, {}),
                   expected = by_hand(layer, o, x * valid.unsqueeze(2));
  EXPECT_LE(relative_error(y.index({valid}), expected.index({valid})), 1e-13);
}

TEST(GatedDelta, WeightsAddUpToTheHeadOutputs) {
  const at::NoGradGuard no_grad;
  const Layer layer = small_layer(options());
  Recorder recorder({"probs", "v", "value_sum", "gate", "o"});
  const Context context{.observer = &recorder};
  layer.attention({.x = at::randn({2, 70, kWidth}, at::kDouble)}, context);
  EXPECT_LE(relative_error(recorder.at("probs").matmul(recorder.at("v")), recorder.at("value_sum")), 1e-12);
  EXPECT_LE(relative_error(recorder.at("value_sum") * recorder.at("gate"), recorder.at("o")), 1e-14);
}

TEST(GatedDelta, NeedsTokensInOrder) {
  EXPECT_THROW(Layer(options(), {.d_model = kWidth, .causal = false}), UserError);
  EXPECT_THROW(Layer(options(), {.d_model = kWidth, .context_length = 4, .memory_length = 4}), UserError);
}

}  // namespace headroom::nn::gated_delta_test
