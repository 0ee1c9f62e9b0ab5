// Compares linear biases (ALiBi) and forget gates with their equations. combinations_test.cc covers gradients,
// decoding, padding and combinations.

#include "headroom/config/part_options.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::bias_position_test {

using config::Forget;
using testing::relative_error;

constexpr std::int64_t kWidth = 6, kMemory = 3, kTokens = 5, kHeadWidth = 4;

config::AttentionOptions options(const std::string& position, std::int64_t n_heads = 3) {
  return attention_options(fmt::format("n_heads={} n_kv_heads=1 d_head={} position={}", n_heads, kHeadWidth, position));
}

Layer layer_of(const config::AttentionOptions& o, std::int64_t window = 0, at::ScalarType type = at::kDouble) {
  return Layer(o, {.d_model = kWidth, .window = window, .context_length = kTokens, .memory_length = kMemory}, type,
               /*noise=*/0.5);
}

at::Tensor tokens(at::ScalarType type = at::kDouble) {
  at::manual_seed(7);
  return at::randn({2, kMemory + kTokens, kWidth}, at::kDouble).to(type);
}

at::Tensor recorded(const Layer& layer, const std::string& name, Context context = {}) {
  Recorder recorder({name});
  context.observer = &recorder;
  layer.last(tokens(c10::typeMetaToScalarType(layer.at("w_q").dtype())), kTokens, context);
  return recorder.at(name);
}

TEST(Alibi, HasTheSlopesOfPressEtAl) {
  const std::vector<std::pair<std::int64_t, std::vector<double>>> exponents = {
      {1, {8}},
      {2, {4, 8}},
      {3, {4, 8, 2}},
      {6, {2, 4, 6, 8, 1, 3}},
      {8, {1, 2, 3, 4, 5, 6, 7, 8}},
      {12, {1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5}}};
  for (const auto& [n_heads, expected] : exponents) {
    const at::Tensor slopes = recorded(layer_of(options("alibi", n_heads)), "slopes");
    EXPECT_LE(relative_error(slopes, at::exp2(-at::tensor(expected, at::kDouble))), 1e-15) << n_heads;
  }
}

// Returns exp(s_ij) without the content: the product of the gates j + 1 to i, or exp(-m_h (i - j)).
double decay(const Layer& layer, const config::AttentionOptions& o, const at::Tensor& x, std::int64_t h, std::int64_t i,
             std::int64_t j) {
  if (o.position == "alibi") {
    constexpr double kSlopes[] = {1.0 / 16, 1.0 / 256, 1.0 / 4};
    return std::exp(-kSlopes[h] * static_cast<double>(i - j));
  }
  double product = 1.0;
  for (std::int64_t l = j + 1; l <= i; ++l) {
    at::Tensor score = layer.at("b_forget")[h];
    if (o.of<config::PositionOptions>().forget == Forget::token) {
      score = score + x[l].dot(layer.at("w_forget").select(1, h));
    }
    product *= score.sigmoid().item<double>();
  }
  return product;
}

// Returns head outputs [B, H, T, e] from loops over queries and keys, for any score, with or without a sink.
at::Tensor written_out(const Layer& layer, const config::AttentionOptions& o, const at::Tensor& all) {
  const at::Tensor q = at::einsum("bsd,dhe->bhse", {all, layer.at("w_q")});
  const at::Tensor k = at::einsum("bsd,dge->bgse", {all, layer.at("w_k")}).squeeze(1);
  const at::Tensor v = at::einsum("bsd,dge->bgse", {all, layer.at("w_v")}).squeeze(1);
  const at::Tensor result = at::zeros({2, o.n_heads, kTokens, kHeadWidth}, at::kDouble);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < o.n_heads; ++h) {
      for (std::int64_t at = kMemory; at < kMemory + kTokens; ++at) {
        const at::Tensor weight = at::empty({at + 1}, at::kDouble);
        for (std::int64_t j = 0; j <= at; ++j) {
          weight[j] = (q[b][h][at].dot(k[b][j]) / 2).exp() * decay(layer, o, all[b], h, at, j);
        }
        at::Tensor p = weight / (weight + (at + 1.0));  // sigmoid(s - log n)
        if (o.score == "dot") {
          const bool sink = o.of<config::DotOptions>().sink;
          p = weight / (weight.sum() + (sink ? layer.at("sink")[h].exp() : at::zeros({}, at::kDouble)));
        }
        result[b][h][at - kMemory] = p.matmul(v[b].narrow(0, 0, at + 1));
      }
    }
  }
  return result;
}

std::vector<config::AttentionOptions> all_options() {
  return {options("alibi"), options("forgetting"), options("forgetting forget=head")};
}

// The query's term only matters with a sink or with sigmoids.
TEST(BiasPosition, TheLayerMatchesItsEquation) {
  const at::NoGradGuard no_grad;
  for (config::AttentionOptions o : all_options()) {
    for (const std::string score : {"dot", "dot with a sink", "sigmoid"}) {
      o.score = score == "sigmoid" ? "sigmoid" : "dot";
      o.of<config::DotOptions>().sink = score == "dot with a sink";
      const Layer layer = layer_of(o);
      const at::Tensor all = tokens(), expected = written_out(layer, o, all);
      EXPECT_LE(relative_error(layer.last(all, kTokens), at::einsum("bhte,hed->btd", {expected, layer.at("w_o")})),
                1e-13)
          << o.position.name() << ", " << score;
    }
  }
}

TEST(BiasPosition, OnlyGatesOfTokensAreCached) {
  const at::NoGradGuard no_grad;
  for (const config::AttentionOptions& o : all_options()) {
    for (const std::int64_t window : {0, 4}) {
      const Layer layer = layer_of(o, window);
      const at::Tensor all = tokens();
      RowCaches cache(layer.attention, all.size(0));
      const at::Tensor rows = cache.read_all(layer.attention, all, {});
      EXPECT_LE(relative_error(rows.narrow(1, kMemory, kTokens), layer.last(all, kTokens)), 1e-13) << window;
      const bool by_token = o.position == "forgetting" && o.of<config::PositionOptions>().forget == Forget::token;
      EXPECT_EQ(cache.elements(), (window > 0 ? window : kMemory + kTokens) * (2 * kHeadWidth + (by_token ? 3 : 0)));
    }
  }
}

TEST(BiasPosition, NeedsACausalMask) {
  Parameters parameters;
  const Builder build(parameters, ParameterSource(1));
  EXPECT_THROW(Attention(options("alibi"), {.d_model = kWidth, .causal = false}, build), UserError);
  EXPECT_THROW(Attention(options("forgetting"), {.d_model = kWidth, .causal = false}, build), UserError);
}

// In bfloat16, sums of rounded logarithms would lose distant tokens.
TEST(Forgetting, SumsInFloat32WhenComputingInBfloat16) {
  const Context context{.compute_dtype = at::kBFloat16};
  EXPECT_EQ(recorded(layer_of(options("forgetting"), 0, at::kFloat), "log_forget", context).scalar_type(), at::kFloat);
}

TEST(Forgetting, StartsWithTheGivenTimes) {
  const Layer layer(options("forgetting forget=head forget_times=[2,32]"), {.d_model = kWidth}, at::kDouble);
  const at::Tensor times = -1.0 / at::log_sigmoid(layer.at("b_forget"));
  EXPECT_LE(relative_error(times.detach(), at::tensor({2.0, 8.0, 32.0}, at::kDouble)), 1e-12);
}

// If gates are near 0, each query must attend only to its token, without infinities.
TEST(Forgetting, MayForgetEverything) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Layer layer = layer_of(options("forgetting"), 0, type);
    {
      const at::NoGradGuard no_grad;
      layer.at("b_forget").fill_(-1e4);
    }
    const at::Tensor all = tokens(type), y = layer.last(all, kTokens);
    const at::Tensor own = at::einsum("bsd,dge->bse", {all.narrow(1, kMemory, kTokens), layer.at("w_v")});
    const at::Tensor expected = at::einsum("bte,hed->btd", {own, layer.at("w_o")});
    EXPECT_LE(relative_error(y.detach(), expected.detach()), 1e-6);
    for (const at::Tensor& gradient :
         torch::autograd::grad({y.sum()}, {layer.at("w_forget"), layer.at("b_forget"), layer.at("w_q")})) {
      EXPECT_TRUE(gradient.isfinite().all().item<bool>());
    }
  }
}

}  // namespace headroom::nn::bias_position_test
