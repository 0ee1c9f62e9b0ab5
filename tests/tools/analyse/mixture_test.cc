#include <gtest/gtest.h>

#include "small_model.h"

namespace headroom::analyse::mixture_test {

const std::string kText = "mixed keys!!", kMixed = "attention.keys=own attention.score=gaussian_mixture ";

TEST(Mixture, CoefficientsKeysAndDistances) {
  const store::OpenedModel opened = small::small_model(kMixed);
  const ModelRunner runner(opened);
  const at::NoGradGuard no_grad;
  runner.parameter("layer1.attention.prior").copy_(at::tensor({0.3, 1.4, 0.7, -0.2}).view({2, 2}));
  const Findings mixture = small::found(opened, "mixture", kText);
  const at::Tensor clamped = at::tensor({0.3, 1.0, 0.7, 0.0}).view({2, 2}).to(at::kFloat);
  EXPECT_TRUE(at::allclose(mixture.tensors.at("layer1.attention.prior"), clamped)) << "clamped as in the layer";
  const nn::Recorder values = small::recorded(opened, kText);
  const at::Tensor k1 = values.at("layer1.attention.k")[0], k2 = values.at("layer1.attention.k2")[0];
  const at::Tensor keys = mixture.tensors.at("layer1.attention.keys");
  EXPECT_TRUE(keys[0].equal(k1));
  EXPECT_TRUE(keys[1].equal(k2));
  const double distance = (k1[1] - k2[1]).norm(2, at::IntArrayRef{-1}).mean().item<double>();
  EXPECT_NEAR(mixture.metrics.at("layer1.attention").at("distance")[1].get<double>(), distance, 1e-5);
}

// Components with equal keys and coefficients have equal shares of every weight.
TEST(Mixture, HasAnyNumberOfComponentsAndGroupedKeys) {
  const store::OpenedModel opened = small::small_model(kMixed + "attention.n_mixtures=11 attention.n_kv_heads=1");
  const Findings mixture = small::found(opened, "mixture", kText);
  EXPECT_EQ(mixture.tensors.at("layer0.attention.keys").size(0), 11);
  EXPECT_NE(mixture.figures.front().blocks.dump().find("layer1 head 1"), std::string::npos)
      << "a row for each query head";
}

TEST(Mixture, EqualComponentsShareEvenly) {
  const store::OpenedModel opened = small::small_model(kMixed);
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    if (p.name.ends_with("w_k")) {
      p.tensor[1].copy_(p.tensor[0]);
    }
  }
  const Findings mixture = small::found(opened, "mixture", kText);
  for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
    const Json& metrics = mixture.metrics.at(layer);
    for (const std::size_t h : {0U, 1U}) {
      EXPECT_NEAR(metrics.at("cosine")[h].get<double>(), 1.0, 1e-5);
      EXPECT_NEAR(metrics.at("distance")[h].get<double>(), 0.0, 1e-5);
      EXPECT_NEAR(metrics.at("responsibility")[0][h].get<double>(), 0.5, 1e-5);
    }
  }
}

// Responsibilities are weighted by the attention weights.
TEST(Mixture, SharesAreOfTheAttentionWeights) {
  for (const std::string kind : {"language_model", "classifier"}) {
    const store::OpenedModel opened = small::small_model(kMixed + "kind=" + kind);
    const Findings mixture = small::found(opened, "mixture", kText);
    const nn::Recorder values = small::recorded(opened, kText);
    for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
      const at::Tensor weights = values.at(layer + ".probs")[0];                // [H, T, S]
      const at::Tensor components = values.at(layer + ".responsibilities")[0];  // [R, H, T, S]
      const at::Tensor queries = at::tensor({12.0, 12.0});                      // their weights sum to 1 each
      const at::Tensor share = (components * weights).sum({2, 3}).to(at::kDouble) / queries;
      EXPECT_TRUE(at::allclose(mixture.tensors.at(layer + ".responsibility"), share, 1e-4, 1e-5)) << layer;
      EXPECT_TRUE(at::allclose(share.sum(0), at::ones({2}, at::kDouble), 1e-4, 1e-5)) << layer;
    }
  }
}

TEST(Mixture, ShiftedKeysAreKeysMinusShift) {
  const store::OpenedModel opened = small::small_model(kMixed + "attention.keys=shifted");
  const Findings mixture = small::found(opened, "mixture", kText);
  const at::Tensor k = small::recorded(opened, kText).at("layer0.attention.k")[0];
  const at::Tensor shift = ModelRunner(opened).parameter("layer0.attention.shift");
  EXPECT_TRUE(at::allclose(mixture.tensors.at("layer0.attention.keys")[1], k - shift[1].unsqueeze(1), 1e-5, 1e-6));
}

// Transformer-MGK's Figures 11 and 12 show a softmax model beside the mixtures.
TEST(Mixture, SingleKeysHaveMatricesAndKeys) {
  const store::OpenedModel opened = small::small_model("");
  const Findings mixture = small::found(opened, "mixture", kText);
  const at::Tensor keys = small::recorded(opened, kText).at("layer1.attention.k")[0];
  EXPECT_TRUE(at::allclose(mixture.tensors.at("layer1.attention.keys")[0], keys, 1e-5, 1e-6));
  EXPECT_TRUE(mixture.metrics.at("layer1.attention").empty()) << "neither coefficients nor distances";
  ASSERT_EQ(mixture.figures.size(), 2U) << "a figure each layer";
  for (const char* map : {"W_K1 of head 1\"", "keys 1 of head 0\""}) {
    EXPECT_NE(mixture.figures[1].blocks.dump().find(map), std::string::npos) << map;
  }
  const ModelFindings all = analyse(opened, {.text = {.text = kText, .data = {}}});
  EXPECT_TRUE(std::none_of(all.analyses.begin(), all.analyses.end(), [](const auto& one) {
    return one.first->name == "mixture";
  })) << "only on request";
}

TEST(Mixture, OfLinearAttention) {
  const Findings mixture = small::found(small::small_model(kMixed + "attention.score=linear"), "mixture", kText);
  EXPECT_EQ(mixture.tensors.at("layer0.attention.keys").sizes().vec(), (std::vector<std::int64_t>{2, 2, 12, 6}));
}

}  // namespace headroom::analyse::mixture_test
