// Converts MLPs to experts. If all experts are active, the conversion is exact, also after a checkpoint round trip.
#include "tools/convert/start.h"

#include "conversion.h"

namespace headroom::convert::mlp_start_test {

class MlpConversionTest : public ConvertTest {
 protected:
  // `more`: further keys of [model].
  ConvertRequest experts(const std::string& more = "") const {
    ConvertRequest r = request("");
    r.target.model =
        tiny::changed(r.target.model, "", "mlp.kind=experts mlp.n_experts=4 mlp.d_hidden=8 mlp.top_k=2 " + more);
    return r;
  }
};

TEST_F(MlpConversionTest, AllExpertsTogetherAreTheSourcesMlp) {
  for (const std::string kind : {"dense", "gated"}) {
    config::Config source = dense();
    source.model = tiny::changed(source.model, "", "mlp.activation=silu mlp.kind=" + kind);
    source.train.seed = 2;
    fs::remove_all(folder_ / "dense");
    train(source);
    const at::Tensor expected = logits((folder_ / "dense").string());
    for (const char* gate : {"sigmoid", "softmax", "softmax_top_k", "softmax_renormalised"}) {
      for (const char* bias : {"none", "all"}) {
        const ConvertRequest r = experts(fmt::format(
            "mlp.expert_kind={} mlp.top_k=4 mlp.gate={} mlp.gate_scale=1.5 mlp.expert_bias={}", kind, gate, bias));
        const Conversion made = convert(r);
        EXPECT_TRUE(made.exact);
        EXPECT_TRUE(made.layers.empty());
        EXPECT_LT((logits(r.out.string()) - expected).abs().max().item<double>(), 1e-5) << gate;
      }
    }
  }
}

TEST_F(MlpConversionTest, SomeExpertsAreRoutedAndFitted) {
  train(dense());
  const ConvertRequest r = experts();
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
  ConvertRequest r = experts();
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
  expect_refused(experts("mlp.d_hidden=7"), "model.mlp.d_hidden");
  expect_refused(experts("mlp.expert_kind=gated"), "expert_kind");
  expect_refused(experts("mlp.d_shared=8"), "d_shared");
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

}  // namespace headroom::convert::mlp_start_test
