// Tests sigmoid attention's equation. combinations_test.cc covers gradients, decoding, padding and combinations.

#include "layer.h"
#include "one_thread.h"

namespace headroom::nn::sigmoid_score_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 6, kHeads = 4, kGroups = 2, kHead = 3, kMemory = 4, kTokens = 5, kWindow = 6;

Layer sigmoid_layer(bool causal, double scale, at::ScalarType type = at::kDouble) {
  Layer layer(
      attention_options(fmt::format("score=sigmoid n_heads={} n_kv_heads={} d_head={} position=none scale=learned",
                                    kHeads, kGroups, kHead)),
      {.d_model = kWidth,
       .causal = causal,
       .window = causal ? kWindow : 0,
       .context_length = kTokens,
       .memory_length = kMemory},
      type);
  const at::NoGradGuard no_grad;
  layer.at("scale").fill_(scale);
  return layer;
}

// o_i is the sum over visible j of sigmoid(scale q_i . k_j - log n_i) v_j; the output projection follows.
at::Tensor written_out(const Layer& layer, const at::Tensor& all, const at::Tensor& valid, bool causal, double scale) {
  const at::Tensor q = at::einsum("bsd,dhe->bhse", {all, layer.at("w_q")});
  const at::Tensor k = at::einsum("bsd,dge->bgse", {all, layer.at("w_k")});
  const at::Tensor v = at::einsum("bsd,dge->bgse", {all, layer.at("w_v")});
  const at::Tensor o = at::zeros({all.size(0), kHeads, kTokens, kHead}, at::kDouble);
  for (std::int64_t b = 0; b < all.size(0); ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kTokens; ++i) {
        const std::int64_t at = kMemory + i, group = h / (kHeads / kGroups);
        std::vector<std::int64_t> seen;
        for (std::int64_t j = causal ? std::max<std::int64_t>(0, at - kWindow + 1) : 0;
             j < (causal ? at + 1 : kMemory + kTokens); ++j) {
          if (valid[b][j].item<bool>()) {
            seen.push_back(j);
          }
        }
        for (const std::int64_t j : seen) {
          const double s = scale * q[b][h][at].dot(k[b][group][j]).item<double>();
          const double weight = 1.0 / (1.0 + static_cast<double>(seen.size()) * std::exp(-s));
          o[b][h][i] += v[b][group][j] * weight;
        }
      }
    }
  }
  return at::einsum("bhte,hed->btd", {o, layer.at("w_o")});
}

TEST(SigmoidScore, MatchesItsEquation) {
  const at::NoGradGuard no_grad;
  at::manual_seed(7);
  const at::Tensor all = at::randn({2, kMemory + kTokens, kWidth}, at::kDouble);
  const at::Tensor valid = at::ones({2, kMemory + kTokens}, at::kBool);
  valid[1].narrow(0, kMemory - 1, 3).fill_(false);
  for (const bool causal : {true, false}) {
    const double scale = 2.5;
    const Layer layer = sigmoid_layer(causal, scale);
    EXPECT_LE(relative_error(layer.last(all, kTokens, {}, valid), written_out(layer, all, valid, causal, scale)), 1e-13)
        << causal;
  }
}

TEST(SigmoidScore, IsFusedInSinglePrecision) {
  const at::NoGradGuard no_grad;
  const Context fused{.implementation = Implementation::fused};
  for (const bool causal : {true, false}) {
    const Layer exact = sigmoid_layer(causal, 1.0), layer = sigmoid_layer(causal, 1.0, at::kFloat);
    for (std::size_t i = 0; i < exact.parameters.all().size(); ++i) {
      layer.parameters.all()[i].tensor.copy_(exact.parameters.all()[i].tensor);
    }
    const at::Tensor all = at::randn({2, kMemory + kTokens, kWidth}, at::kDouble);
    EXPECT_LE(relative_error(layer.last(all.to(at::kFloat), kTokens, fused), exact.last(all, kTokens)), 1e-6) << causal;
    EXPECT_THROW(exact.last(all, kTokens, fused), UserError);
  }
}

}  // namespace headroom::nn::sigmoid_score_test
