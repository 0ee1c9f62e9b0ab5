// A position scheme with key features (forgetting heads): it computes features of the tokens, adds a bias to the scores
// and caches the features while decoding.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "engine/ops/gradients.h"
#include "layer.h"
#include "one_thread.h"

namespace headroom::nn {
namespace position_features_test {

using testing::relative_error;

constexpr std::int64_t kWidth = 6, kHeads = 2, kMemory = 3, kTokens = 5;

// s_ij += sum over j < l <= i of log f_l, f_l = sigmoid(x_l W) for each head; the key features are log f.
class ForgettingHeads : public Position {
 public:
  ForgettingHeads(const LayerInit& init, const Builder& build)
      : w_(build.matrix("w_forget", {init.d_model, kHeads}, Distribution::normal(0.5),
                        {.in = init.d_model, .out = kHeads})) {}
  std::optional<Rotary> rotary() const override { return std::nullopt; }
  at::Tensor key_features(const at::Tensor& x, const Context&) const override {
    return at::log_sigmoid(x.matmul(w_)).unsqueeze(1);
  }
  void add_to(ops::AttentionInputs& in, const at::Tensor& key_features, AttentionCache*,
              const Context&) const override {
    const at::Tensor sums = key_features.squeeze(1).transpose(1, 2).cumsum(2);  // [B, H, S]
    in.bias = sums.narrow(2, sums.size(2) - in.q.size(2), in.q.size(2)).unsqueeze(3) - sums.unsqueeze(2);
  }

 private:
  at::Tensor w_;
};

// Replaces the position scheme "none" by the one above during its lifetime.
class InPlaceOfNone {
 public:
  InPlaceOfNone() {
    slot() = [](const config::AttentionOptions&, const LayerInit& init, const Builder& build) {
      return std::unique_ptr<Position>(std::make_unique<ForgettingHeads>(init, build));
    };
  }
  ~InPlaceOfNone() { slot() = before_; }

 private:
  static MakePosition& slot() { return factories<MakePosition>().at("none"); }
  MakePosition before_ = slot();
};

struct ForgettingLayer : InPlaceOfNone, Layer {
  explicit ForgettingLayer(std::int64_t window)
      : Layer(options(), {.d_model = kWidth, .window = window, .context_length = kTokens, .memory_length = kMemory}) {}

  static config::AttentionOptions options() {
    config::AttentionOptions o;
    o.n_heads = kHeads;
    o.n_kv_heads = 1;
    o.d_head = 4;
    o.position = "none";
    return o;
  }
};

at::Tensor tokens() {
  at::manual_seed(7);
  return at::randn({2, kMemory + kTokens, kWidth}, at::kDouble);
}

// o_i = sum_j softmax_j(q_i . k_j / 2 + log of the gates' product from j to i) v_j.
TEST(PositionFeatures, TheLayerIsItsEquation) {
  const at::NoGradGuard no_grad;
  const ForgettingLayer layer(0);
  const at::Tensor all = tokens();
  const at::Tensor q = at::einsum("bsd,dhe->bhse", {all, layer.at("w_q")});
  const at::Tensor k = at::einsum("bsd,dge->bgse", {all, layer.at("w_k")}).squeeze(1);
  const at::Tensor v = at::einsum("bsd,dge->bgse", {all, layer.at("w_v")}).squeeze(1);
  const at::Tensor gate = all.matmul(layer.at("w_forget")).sigmoid();
  const at::Tensor o = at::zeros({2, kHeads, kTokens, 4}, at::kDouble);
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t h = 0; h < kHeads; ++h) {
      for (std::int64_t i = 0; i < kTokens; ++i) {
        const std::int64_t at = kMemory + i;
        const at::Tensor weight = at::empty({at + 1}, at::kDouble);
        for (std::int64_t j = 0; j <= at; ++j) {
          weight[j] = (q[b][h][at].dot(k[b][j]) / 2).exp() * gate[b].select(1, h).narrow(0, j + 1, at - j).prod();
        }
        o[b][h][i] = (weight / weight.sum()).matmul(v[b].narrow(0, 0, at + 1));
      }
    }
  }
  EXPECT_LE(relative_error(layer.last(all, kTokens), at::einsum("bhte,hed->btd", {o, layer.at("w_o")})), 1e-13);
}

TEST(PositionFeatures, HaveGradients) {
  const ForgettingLayer layer(0);
  const at::Tensor all = tokens(), w = layer.at("w_forget");
  const auto objective = [&] { return layer.last(all, kTokens).square().sum(); };
  const at::Tensor gradient = torch::autograd::grad({objective()}, {w})[0];
  const at::NoGradGuard no_grad;
  const at::Tensor direction = at::randn_like(w);
  constexpr double kStep = 1e-6;
  w.add_(direction, kStep);
  const double up = objective().item<double>();
  w.sub_(direction, 2 * kStep);
  const double difference = (up - objective().item<double>()) / (2 * kStep);
  // The error of the difference is step^2 times a third derivative plus 1e-16 / step.
  EXPECT_NEAR((gradient * direction).sum().item<double>(), difference, 1e-7 * std::max(1.0, std::abs(difference)));
  EXPECT_GT(std::abs(difference), 1e-3);
}

TEST(PositionFeatures, AreKeptWhileDecoding) {
  const at::NoGradGuard no_grad;
  for (const std::int64_t window : {0, 4}) {
    const ForgettingLayer layer(window);
    const at::Tensor all = tokens();
    RowCaches cache(layer.attention, all.size(0));
    const at::Tensor rows = cache.read_all(layer.attention, all, {});
    EXPECT_LE(relative_error(rows.narrow(1, kMemory, kTokens), layer.last(all, kTokens)), 1e-13) << window;
    EXPECT_EQ(cache.elements(), (window > 0 ? window : kMemory + kTokens) * (2 * 4 + kHeads));
  }
}

}  // namespace position_features_test
}  // namespace headroom::nn
