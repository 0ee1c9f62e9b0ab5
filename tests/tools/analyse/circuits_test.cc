#include <gtest/gtest.h>

#include <cmath>

#include "small_model.h"

namespace headroom::analyse::circuits_test {

// Models with composed heads, several scores or a gate, which must not affect value-output circuits.
std::vector<std::string> kinds_of_heads() {
  std::vector<std::string> all = {"", "attention.score=sigmoid", "attention.sink=true",
                                  "attention.gate_output=element"};
  for (const char* stages : {R"(["pre","post"])", R"(["pre"])", R"(["post"])"}) {
    for (const char* composed : {"static", "static attention.compose_skip=false", "static attention.compose_groups=2",
                                 "dynamic", "dynamic attention.compose_static=true",
                                 "dynamic attention.compose_skip=false", "dynamic attention.compose_groups=2",
                                 R"(dynamic attention.compose_low_rank=["query"] attention.compose_gates=[])",
                                 R"(dynamic attention.compose_low_rank=[] attention.compose_gates=["key"])"}) {
      all.push_back(fmt::format("attention.compose={} attention.composition={}", stages, composed));
    }
  }
  return all;
}

// Equation 12: embedding, first MLP, norm, value and output matrix, output layer.
TEST(Circuits, TopTokensMatchEq12) {
  for (const std::string& kind : kinds_of_heads()) {
    SCOPED_TRACE(kind);
    const store::OpenedModel opened = small::small_model(kind);
    const Findings circuits = small::found(opened, "circuits", "ab ba");
    const ModelRunner runner(opened);
    const auto p = [&](const std::string& name) { return runner.parameter(name); };
    const auto norm = [&](const at::Tensor& x, const std::string& name) {
      return at::layer_norm(x, {12}, p(name + ".scale"), p(name + ".bias"), 1e-5);
    };
    const at::Tensor tokens = at::tensor({'a', 'b'}, at::kLong);
    at::Tensor x = p("embed").index_select(0, tokens);
    const at::Tensor hidden = at::gelu(norm(x, "layer0.norm_2").mm(p("layer0.ffn.w_up")) + p("layer0.ffn.b_up"));
    x = x + hidden.mm(p("layer0.ffn.w_down")) + p("layer0.ffn.b_down");
    for (const std::string layer : {"layer0", "layer1"}) {
      const at::Tensor y = norm(x, layer + ".norm_1");
      for (std::int64_t h = 0; h < 2; ++h) {
        const at::Tensor ov = p(layer + ".attention.w_v").select(1, h).mm(p(layer + ".attention.w_o")[h]);
        const at::Tensor scores = y.mm(ov).mm(p("head.w"));
        EXPECT_TRUE(circuits.tensors.at(layer + ".attention.top").select(1, h).equal(std::get<1>(scores.topk(10, -1))))
            << layer << " head " << h;
      }
    }
  }
}

// All matrices are the identity, so every token maps to itself.
TEST(Circuits, AHeadThatCopies) {
  const store::OpenedModel opened =
      small::small_model("d_model=260 attention.n_heads=1 attention.d_head=260", /*noise=*/0.0);
  const at::Tensor all = at::eye(260);
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    if (p.name == "embed" || p.name == "head.w") {
      p.tensor.copy_(all);
    } else if (p.name.ends_with("w_v")) {
      p.tensor.squeeze(1).copy_(all);
    } else if (p.name.ends_with("w_o")) {
      p.tensor[0].copy_(all);
    } else if (p.name.find("ffn") != std::string::npos) {
      p.tensor.zero_();
    }
  }
  const Findings circuits = small::found(opened, "circuits", "copy me");
  for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
    EXPECT_EQ(circuits.metrics.at("ov").at(layer)[0].at("copies"), 1.0);
    EXPECT_EQ(circuits.metrics.at("ov").at(layer)[0].at("tokens")[0].at("to")[0], "c");
  }
}

// The norm enlarges a small embedding, so nearly the whole effect comes from the first hundredth of the path.
TEST(Circuits, GradientsFollowASteepPath) {
  const store::OpenedModel opened = small::small_model("");
  const at::NoGradGuard no_grad;
  ModelRunner(opened).parameter("embed").mul_(1e-3);
  const Json gradients = small::found(opened, "circuits", "the answer").metrics.at("gradients");
  for (const auto& [layer, of] : gradients.at("layers").items()) {
    const auto effect = of.at("all_heads").get<double>();
    EXPECT_GT(std::abs(effect), 1e-2) << "the heads must have an effect";
    EXPECT_LE(std::abs(of.at("residual").get<double>()), 0.01 * std::abs(effect)) << layer;
  }
  EXPECT_GT(gradients.at("layers").at("layer0.attention").at("steps").get<int>(), 16);
}

// Where the routing changes along the path, the log-probability jumps. The jumps are reported separately.
TEST(Circuits, JumpsOfTheRoutingAreAttributedToNoHead) {
  const store::OpenedModel opened = small::small_model("attention.projection=experts");
  const Json gradients = small::found(opened, "circuits", "the answer").metrics.at("gradients");
  for (const auto& [layer, of] : gradients.at("layers").items()) {
    const auto effect = of.at("all_heads").get<double>(), residual = of.at("residual").get<double>();
    EXPECT_LE(std::abs(residual), 0.01 * std::abs(effect)) << layer;
    EXPECT_NEAR(
        of.at("by_head")[0].get<double>() + of.at("by_head")[1].get<double>() + of.at("jumps").get<double>() + residual,
        effect, 1e-9)
        << layer;
  }
  EXPECT_EQ(gradients.at("layers").at("layer1.attention").at("jumps"), 0.0) << "no layer follows whose routing changes";
}

// Contributions sum to the change of the log-probability without the heads; a head whose output is 0 contributes 0.
TEST(Circuits, GradientsAddUp) {
  const store::OpenedModel opened = small::small_model("", /*noise=*/0.1);
  for (const nn::Parameter& p : opened.model->parameters().all()) {
    if (p.name == "layer1.attention.w_o") {
      p.tensor[1].zero_();
    }
  }
  const std::string text = "the answer";
  const Json gradients = small::found(opened, "circuits", text).metrics.at("gradients");
  EXPECT_EQ(gradients.at("answer"), "r");
  const at::NoGradGuard no_grad;
  const auto log_p = [&](const std::string& off) {
    struct Off : nn::Observer {
      std::string name;
      bool wants(std::string_view asked) const override { return asked == name; }
      at::Tensor observe(std::string_view, at::Tensor value) override { return at::zeros_like(value); }
    } observer;
    observer.name = off;
    InputBatch input;
    const std::vector<std::int64_t> ids(text.begin(), text.end() - 1);
    input.tokens = at::tensor(ids, at::kLong).unsqueeze(0);
    return ModelRunner(opened).logits(input, &observer)[0][-1].log_softmax(-1)['r'].item<double>();
  };
  EXPECT_NEAR(gradients.at("log_probability").get<double>(), log_p(""), 1e-5);
  for (const std::string layer : {"layer0.attention", "layer1.attention"}) {
    const Json& of = gradients.at("layers").at(layer);
    const double all = log_p("") - log_p(layer + ".o");
    EXPECT_GT(std::abs(all), 1e-3) << "the heads must have an effect";
    EXPECT_NEAR(of.at("all_heads").get<double>(), all, 1e-5);
    EXPECT_NEAR(of.at("by_head")[0].get<double>() + of.at("by_head")[1].get<double>(), all, 0.01 * std::abs(all));
  }
  EXPECT_EQ(gradients.at("layers").at("layer1.attention").at("by_head")[1].get<double>(), 0.0);
}

}  // namespace headroom::analyse::circuits_test
