#include <gtest/gtest.h>

#include <cmath>

#include "small_model.h"
#include "tools/analyse/measures.h"

namespace headroom::analyse::maps_test {

using small::found;
using small::recorded;
using small::small_model;

const std::string kText = "hello maps";

// Compares the maps with the softmax of queries and keys, written out.
TEST(Maps, AreTheWeightsOfTheKeys) {
  const store::OpenedModel opened = small_model("");
  const Findings maps = found(opened, "maps", kText);
  const nn::Recorder values = recorded(opened, kText);
  for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
    const at::Tensor q = values.at(layer + ".q")[0], k = values.at(layer + ".k")[0];
    const std::int64_t t = q.size(1);
    const at::Tensor future = at::ones({t, t}, at::kBool).triu(1);
    const at::Tensor p = (q.matmul(k.transpose(1, 2)) / std::sqrt(6.0)).masked_fill(future, -INFINITY).softmax(-1);
    EXPECT_TRUE(at::allclose(maps.tensors.at(layer), p, 1e-5, 1e-6));
    double entropy = 0.0, own = 0.0, previous = 0.0, first = 0.0;  // of head 1
    for (std::int64_t i = 0; i < t; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const double w = p[1][i][j].item<double>();
        entropy -= w * std::log(w);
        own += i == j ? w : 0.0;
        previous += i == j + 1 ? w : 0.0;
        first += j == 0 ? w : 0.0;
      }
    }
    const auto n = static_cast<double>(t);
    const Json& metrics = maps.metrics.at(layer);
    EXPECT_NEAR(metrics.at("entropy")[1].get<double>(), entropy / n, 1e-5);
    EXPECT_NEAR(metrics.at("own_token")[1].get<double>(), own / n, 1e-5);
    EXPECT_NEAR(metrics.at("previous_token")[1].get<double>(), previous / (n - 1), 1e-5);
    EXPECT_NEAR(metrics.at("first_token")[1].get<double>(), first / n, 1e-5);
  }
}

// The maps show the weights of routed experts, and 0 for the others.
TEST(Maps, HaveTheWeightsOfTheExperts) {
  const store::OpenedModel opened = small_model("attention.projection=experts");
  const Findings maps = found(opened, "maps", kText);
  const nn::Recorder values = recorded(opened, kText);
  for (const std::string side : {"layer0.attention.select_in", "layer1.attention.select_out"}) {
    const at::Tensor index = values.at(side + ".index"), weight = values.at(side + ".weight");
    at::Tensor expected = at::zeros({index.size(0), 2, 4});
    for (std::int64_t i = 0; i < index.size(0); ++i) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t k = 0; k < 2; ++k) {
          expected[i][h][index[i][h][k].item<std::int64_t>()] = weight[i][h][k];
        }
      }
    }
    EXPECT_TRUE(maps.tensors.at(side).equal(expected)) << side;
  }
}

// With relative positions, scores are the sum of content and position; the content is the scaled dot product.
TEST(Maps, SplitContentAndPosition) {
  const store::OpenedModel opened = small_model("attention.position=relative");
  const Findings maps = found(opened, "maps", kText);
  const nn::Recorder values = recorded(opened, kText);
  for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
    const at::Tensor content =
        values.at(layer + ".q")[0].matmul(values.at(layer + ".k")[0].transpose(1, 2)) / std::sqrt(6.0);
    EXPECT_TRUE(at::allclose(maps.tensors.at(layer + ".content"), content, 1e-4, 1e-4)) << layer;
    const at::Tensor sum = maps.tensors.at(layer + ".content") + maps.tensors.at(layer + ".position");
    EXPECT_TRUE(at::allclose(sum, values.at(layer + ".scores")[0], 1e-5, 1e-5));
    EXPECT_GT(maps.tensors.at(layer + ".position").abs().max().item<double>(), 1e-2);
  }
}

// Linear attention, with and without a normaliser (Transformer-MGK, Figure 8), shows features of queries and keys.
TEST(Maps, OfLinearAttention) {
  for (const auto& [how, components] : {std::pair("attention.normaliser=sum attention.keys=single", 1),
                                        {"attention.normaliser=none attention.keys=single", 1},
                                        {"attention.normaliser=none attention.keys=own", 2}}) {
    const store::OpenedModel opened = small_model(std::string("attention.score=linear ") + how);
    const at::Tensor weights = found(opened, "maps", kText).tensors.at("layer1.attention");
    EXPECT_TRUE(at::allclose(weights.sum(-1), at::ones({2, 10}), 1e-5, 1e-5));
    EXPECT_EQ(weights.triu(1).abs().max().item<double>(), 0.0);
    if (components == 1) {
      const nn::Recorder values = recorded(opened, kText);
      const at::Tensor q = at::elu(values.at("layer1.attention.q")[0]) + 1.0,
                       k = at::elu(values.at("layer1.attention.k")[0]) + 1.0;
      const at::Tensor products = q.matmul(k.transpose(1, 2)).tril();
      EXPECT_TRUE(at::allclose(weights, products / products.sum(-1, true), 1e-4, 1e-5));
    }
  }
}

// A tenth of each later query's weight is on key 40, the rest on all keys equally. The first queries' weights of up to
// 1 must not make the stripe pale.
TEST(Maps, ShadesShowAStripeAndTheGround) {
  constexpr std::int64_t kT = 128;
  const at::Tensor visible = at::ones({kT, kT}).tril();
  at::Tensor weights = visible / visible.sum(-1, true);
  weights.narrow(0, 40, kT - 40).mul_(0.9).select(1, 40).add_(0.1);
  const double end = shade_end(weights).item<double>();
  const auto opacity = [&](std::int64_t query, std::int64_t key) {
    return std::sqrt(std::min(1.0, weights[query][key].item<double>() / end));
  };
  EXPECT_GT(opacity(120, 40), 0.8);
  EXPECT_LT(opacity(120, 60), 0.4);
  EXPECT_GT(opacity(120, 60), 0.1);
  EXPECT_EQ(shade_end(at::arange(1, 1001)).item<double>(), 995.0);
  EXPECT_EQ(shade_end(at::zeros({2, 2})).item<double>(), 0.0);
}

// Half of each later query's weight is on key 3 of head 1; head 0 attends to the first token and to its own.
TEST(Maps, FindStripes) {
  constexpr std::int64_t kT = 16;
  at::Tensor weights = at::zeros({2, kT, kT});
  for (std::int64_t i = 0; i < kT; ++i) {
    weights[0][i][0] += 0.5;
    weights[0][i][i] += 0.5;
    weights[1][i][i > 3 ? 3 : 0] += 0.5;
    weights[1][i][i] += 0.5;
  }
  const Stripes stripes = vertical_stripes(weights);
  EXPECT_EQ(stripes.key[1].item<std::int64_t>(), 3);
  EXPECT_NEAR(stripes.weight[1].item<double>(), 0.5, 1e-6);
  EXPECT_GT(stripes.weight[1].item<double>(), 4.0 * stripes.by_chance[1].item<double>());
  EXPECT_EQ(stripes.weight[0].item<double>(), 0.0);
  // Without a causal mask, all queries count.
  EXPECT_NEAR(vertical_stripes(at::full({1, kT, kT}, 1.0 / kT)).weight[0].item<double>(), 1.0 / kT, 1e-6);
  // Equal weights on all visible keys are not a stripe.
  const at::Tensor visible = at::ones({1, kT, kT}).tril();
  const Stripes none = vertical_stripes(visible / visible.sum(-1, true));
  EXPECT_NEAR(none.weight[0].item<double>(), none.by_chance[0].item<double>(), 1e-6);
  const at::Tensor near = visible.triu(-3);  // a window of 4
  const Stripes local = vertical_stripes(near / near.sum(-1, true), 4);
  EXPECT_NEAR(local.weight[0].item<double>(), local.by_chance[0].item<double>(), 1e-6);
  const Findings maps = found(small_model(""), "maps", kText);
  EXPECT_EQ(maps.figures.front().caption, "vertical stripes");
  EXPECT_EQ(maps.metrics.at("layer1.attention").at("stripe").size(), 2U);
}

}  // namespace headroom::analyse::maps_test
