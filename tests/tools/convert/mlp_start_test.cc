// MLPs that become experts: exact if all are chosen, through the file.
#include "tools/convert/start.h"

#include <ATen/CPUGeneratorImpl.h>

#include "conversion.h"
#include "headroom/core/files.h"

namespace headroom::convert {
namespace {

using Mlp = config::MlpOptions;

class MlpConversionTest : public ConvertTest {
 protected:
  ConvertRequest experts(const std::function<void(Mlp&)>& change) const {
    ConvertRequest r = request([](config::AttentionOptions&) {});
    Mlp& mlp = r.target.model.mlp;
    mlp.kind = config::MlpKind::experts;
    mlp.n_experts = 4;
    mlp.d_hidden = 8;
    mlp.top_k = 2;
    change(mlp);
    return r;
  }
};

TEST_F(MlpConversionTest, AllExpertsTogetherAreTheSourcesMlp) {
  for (const config::MlpKind kind : {config::MlpKind::dense, config::MlpKind::gated}) {
    config::Config source = dense();
    source.model.mlp.kind = kind;
    source.model.mlp.activation = config::Activation::silu;
    source.train.seed = 2;
    fs::remove_all(folder_ / "dense");
    train(source);
    const at::Tensor expected = logits((folder_ / "dense").string());
    for (const config::Gate gate : {config::Gate::sigmoid, config::Gate::softmax, config::Gate::softmax_top_k,
                                    config::Gate::softmax_renormalised}) {
      for (const config::ExpertBias bias : {config::ExpertBias::none, config::ExpertBias::all}) {
        ConvertRequest r = experts([&](Mlp& mlp) {
          mlp.expert_kind = kind == config::MlpKind::gated ? config::ExpertKind::gated : config::ExpertKind::dense;
          mlp.top_k = 4;
          mlp.gate = gate;
          mlp.gate_scale = 1.5;
          mlp.expert_bias = bias;
        });
        const Conversion made = convert(r);
        EXPECT_TRUE(made.exact);
        EXPECT_TRUE(made.layers.empty());
        EXPECT_LT((logits(r.out.string()) - expected).abs().max().item<double>(), 1e-5) << config::name_of(gate);
      }
    }
  }
}

TEST_F(MlpConversionTest, SomeExpertsAreRoutedAndFitted) {
  train(dense());
  const ConvertRequest r = experts([](Mlp&) {});
  const Conversion made = convert(r);
  EXPECT_FALSE(made.exact);
  ASSERT_EQ(made.layers.size(), 2U);
  EXPECT_EQ(made.layers[0].layer, "layer0.ffn");
  for (const LayerError& layer : made.layers) {
    EXPECT_LE(layer.fitted, layer.start);
    EXPECT_LT(layer.start, 0.5);
  }
  const std::string first = read_text_file(r.out);
  convert(r);
  EXPECT_EQ(read_text_file(r.out), first);
  const store::Checkpoint result = store::read_checkpoint(r.out);
  EXPECT_EQ(result.config.model.mlp.expert_bias, config::ExpertBias::hidden);  // the source's MLP has biases
  EXPECT_EQ(result.metadata.at("converted_seed"), "1");
  EXPECT_FALSE(result.metadata.at("converted_data").empty());
}

TEST_F(MlpConversionTest, AttentionAndMlpOfNamedLayersAreConverted) {
  train(dense());
  ConvertRequest r = experts([](Mlp&) {});
  r.target.model.attention.n_heads = 2;
  r.layers = {1};
  const Conversion made = convert(r);
  ASSERT_EQ(made.layers.size(), 2U);
  EXPECT_EQ(made.layers[0].layer, "layer1.attention");
  EXPECT_EQ(made.layers[1].layer, "layer1.ffn");
  const config::ModelOptions model = store::read_checkpoint(r.out).config.model;
  EXPECT_EQ(model.of_layer(0).mlp.kind, config::MlpKind::dense);
  EXPECT_EQ(model.of_layer(1).mlp.kind, config::MlpKind::experts);
  EXPECT_EQ(model.of_layer(1).attention.n_heads, 2);
}

TEST_F(MlpConversionTest, RefusesExpertsThatTheHiddenUnitsDoNotFill) {
  train(dense());
  expect_refused(experts([](Mlp& mlp) { mlp.d_hidden = 7; }), "model.mlp.d_hidden");
  expect_refused(experts([](Mlp& mlp) { mlp.expert_kind = config::ExpertKind::gated; }), "expert_kind");
  expect_refused(experts([](Mlp& mlp) { mlp.d_shared = 8; }), "d_shared");
}

TEST(BalancedGroupsTest, FindsUnitsThatAreActiveTogether) {
  const std::int64_t groups = 3, size = 5, n = 40;
  const at::Generator random = at::make_generator<at::CPUGeneratorImpl>(3);
  const at::Tensor centres = at::randn({groups, n}, random), order = at::randperm(groups * size, random, at::kLong);
  const at::Tensor group_of = order.remainder(groups);
  const at::Tensor features = centres.index_select(0, group_of) + 0.1 * at::randn({groups * size, n}, random);
  const at::Tensor found = group_of.index_select(0, balanced_groups(features, groups)).view({groups, size});
  EXPECT_TRUE(found.eq(found.narrow(1, 0, 1)).all().item<bool>());
}

}  // namespace
}  // namespace headroom::convert
