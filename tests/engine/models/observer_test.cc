// Tests the observed values of whole models, in full passes and in decoding.
#include "headroom/nn/observer.h"

#include <ATen/core/grad_mode.h>

#include "headroom/models/encoder_decoder.h"
#include "headroom/models/language_model.h"
#include "headroom/ops/choice.h"
#include "small_models.h"

namespace headroom::models::observer_test {

using Values = std::map<std::string, std::vector<at::Tensor>>;

// Records every value, in order.
struct Everything : nn::Observer {
  Values values;
  bool wants(std::string_view) const override { return true; }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    values[std::string(name)].push_back(value);
    return value;
  }
};

config::ModelOptions with_everything(config::ModelKind kind) {
  config::ModelOptions o = tiny::changed(tiny::model(kind), "",
                                         "attention.projection=experts attention.composition=dynamic mlp.kind=experts");
  return o;
}

bool per_token(const std::string& name) {  // shape [B T, ...] of the call's tokens
  return name.find(".select") != std::string::npos;
}

// Expects that the values of decoding steps join to the values of the full pass. Pair values and key maps only cover
// the keys read so far, so only the last query's values are compared.
void expect_same(const std::string& name, const std::vector<at::Tensor>& whole, const std::vector<at::Tensor>& steps,
                 std::int64_t n_tokens) {
  ASSERT_EQ(whole.size(), 1U) << name;
  const at::Tensor all = whole[0];
  if (steps.size() == 1 && steps[0].sizes() == all.sizes()) {  // a value of the source sequence
    EXPECT_TRUE(at::allclose(all, steps[0], 1e-4, 1e-5)) << name;
    return;
  }
  ASSERT_EQ(static_cast<std::int64_t>(steps.size()), n_tokens) << name;
  for (std::int64_t t = 0; t < n_tokens; ++t) {
    const at::Tensor step = steps[static_cast<std::size_t>(t)];
    at::Tensor expected;
    if (per_token(name)) {
      expected = all.view({-1, n_tokens, all.size(1), all.size(2)}).select(1, t);
    } else if (name.ends_with("key_map") || name.ends_with("key_terms")) {
      expected = all.narrow(1, 0, step.size(1));
    } else if (all.dim() == 4) {
      expected = all.narrow(2, t, 1).narrow(3, 0, step.size(3));
    } else {
      expected = all.narrow(1, t, 1);
    }
    EXPECT_TRUE(at::allclose(expected, step, 1e-4, 1e-5)) << name << " of token " << t;
  }
}

TEST(ObservedModels, ALanguageModelDecodesUnderTheNamesOfItsFullPass) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(with_everything(config::ModelKind::language_model), 5);
  const at::Tensor tokens = model.example(1, 7).at("tokens").slice(1, 0, -1);
  Everything whole, steps;
  nn::Context context{.observer = &whole};
  Memory memory;
  model.logits(tokens, memory, context);
  context.observer = &steps;
  std::vector<DecodeState> states(1, model.start_decoding());
  for (std::int64_t t = 0; t < tokens.size(1); ++t) {
    testing::decode(model, tokens.narrow(1, t, 1), states, context);
  }
  ASSERT_TRUE(whole.values.contains("layer1.attention.probs_composed"));
  ASSERT_TRUE(whole.values.contains("layer0.ffn.select.weight"));
  ASSERT_EQ(whole.values.size(), steps.values.size());
  for (const auto& [name, values] : whole.values) {
    expect_same(name, values, steps.values[name], tokens.size(1));
  }
}

TEST(ObservedModels, AnEncoderDecoderDecodesUnderTheNamesOfItsFullPass) {
  const at::NoGradGuard no_grad;
  const EncoderDecoder model(with_everything(config::ModelKind::encoder_decoder), 5);
  const Batch batch = model.example(1, 7);
  const at::Tensor source = batch.at("source"), target = batch.at("target");
  Everything whole, steps;
  nn::Context context{.observer = &whole};
  model.logits({.source = source, .valid_source = {}, .target = target, .valid_target = {}}, context);
  context.observer = &steps;
  auto states = model.start_decoding(source, {}, context);
  for (std::int64_t t = 0; t < target.size(1); ++t) {
    testing::decode(model, target.narrow(1, t, 1), states, context);
  }
  ASSERT_TRUE(whole.values.contains("encoder.layer1.attention.probs"));
  ASSERT_TRUE(whole.values.contains("decoder.layer1.cross.probs"));
  ASSERT_EQ(whole.values.size(), steps.values.size());
  for (const auto& [name, values] : whole.values) {
    if (name.find("cross.key_") == std::string::npos) {  // the source is read again
      expect_same(name, values, steps.values[name], target.size(1));
    }
  }
}

TEST(ObservedModels, OnlyObservedLayersUseTheReference) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(tiny::model(), 5);
  nn::Recorder recorder({"layer1.attention.probs", "layer*.attention.o"});
  const nn::Context context{.observer = &recorder};
  Memory memory;
  ops::reset_implementation_counts();
  model.logits(model.example(1, 7).at("tokens").slice(1, 0, -1), memory, context);
  EXPECT_EQ(ops::implementation_counts()["attention"].fused, 1);
  EXPECT_EQ(ops::implementation_counts()["attention"].reference, 1);
  EXPECT_EQ(recorder.values.size(), 3U);
}

}  // namespace headroom::models::observer_test
