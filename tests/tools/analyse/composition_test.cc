#include "tools/analyse/measures.h"

#include <gtest/gtest.h>

#include "small_model.h"

namespace headroom::analyse::composition_test {

using small::found;
using small::small_model;

const std::string kText = "composition!";

config::ModelOptions composed(const std::string& kind = "dynamic") {
  return small::small_options(
      fmt::format("attention.composition={} attention.n_heads=4 attention.compose_static={}", kind, kind == "dynamic"));
}

// Computes equation 7 for one pair from the layer's parameters and input.
struct WrittenOut {
  const ModelRunner& runner;
  std::string stage;  // "layer1.attention.post"
  at::Tensor a;       // [H]

  at::Tensor low_rank(const std::string& side, const at::Tensor& x) const {
    const at::Tensor w1 = runner.parameter(stage + "." + side + ".w1")[0],
                     w2 = runner.parameter(stage + "." + side + ".w2")[0];
    const at::Tensor f = at::einsum("i,ikrh->krh", {at::gelu(x.unsqueeze(0).mm(w1))[0], w2});  // [2, R, H]
    at::Tensor sum = at::zeros({a.size(0)});
    for (std::int64_t r = 0; r < f.size(1); ++r) {
      const at::Tensor u = f[0][r] / (f[0][r].square().mean() + 1e-6).sqrt();
      sum = sum + a.dot(u) * f[1][r];
    }
    return sum;
  }
  at::Tensor gate(const std::string& side, const at::Tensor& x) const {
    return a * at::tanh(x.unsqueeze(0).mm(runner.parameter(stage + "." + side + ".wg"))[0]);
  }
};

TEST(Composition, TermsMatchEq7) {
  const store::OpenedModel opened = small_model(composed());
  const Findings composition = found(opened, "composition", kText);
  const nn::Recorder values = small::recorded(opened, kText);
  const ModelRunner runner(opened);
  const std::string layer = "layer1.attention";
  for (const std::string stage : {"pre", "post"}) {
    const Json& pair = composition.metrics.at(layer).at(stage).at("pair");
    const auto i = pair.at("query_place").get<std::int64_t>(), j = pair.at("key_place").get<std::int64_t>();
    EXPECT_EQ(i, 11);
    const at::Tensor a = values.at(layer + (stage == "pre" ? ".scores" : ".probs"))[0].select(1, i).select(1, j),
                     x = values.at(layer + ".x")[0];
    const WrittenOut written{runner, layer + "." + stage, a.contiguous()};
    const at::Tensor fixed = runner.parameter(layer + "." + stage + ".wb")[0];
    const std::map<std::string, at::Tensor> expected = {
        {"before", a},
        {"base", a + a.unsqueeze(0).mm(fixed)[0]},
        {"query_low_rank", written.low_rank("q", x[i])},
        {"query_gate", written.gate("q", x[i])},
        {"key_low_rank", written.low_rank("k", x[j])},
        {"key_gate", written.gate("k", x[j])},
        {"after",
         values.at(layer + (stage == "pre" ? ".scores_composed" : ".probs_composed"))[0].select(1, i).select(1, j)}};
    for (const auto& [name, term] : expected) {
      const at::Tensor got = at::tensor(pair.at(name).get<std::vector<double>>(), at::kDouble).to(at::kFloat);
      EXPECT_TRUE(at::allclose(got, term, 1e-4, 1e-5)) << stage << " " << name << "\n" << got << term;
    }
    EXPECT_LT(composition.metrics.at(layer).at(stage).at("residual").get<double>(), 1e-4);
  }
}

// The size of a term is its mean over heads, visible pairs and samples.
TEST(Composition, SizesAreMeansOverVisiblePairs) {
  const store::OpenedModel opened = small_model(composed());
  const Findings composition = found(opened, "composition", kText);
  const nn::Recorder values = small::recorded(opened, kText);
  const at::Tensor gate = values.at("layer0.attention.query_terms")[0].select(1, 1).select(1, 1);  // post [T, H, H]
  const at::Tensor p = values.at("layer0.attention.probs")[0];
  double sum = 0.0, pairs = 0.0;
  for (std::int64_t i = 0; i < 12; ++i) {
    for (std::int64_t j = 0; j <= i; ++j) {
      sum += (p.select(1, i).select(1, j) * gate[i].diagonal()).abs().sum().item<double>();
      pairs += 4.0;
    }
  }
  const Json& sizes = composition.metrics.at("layer0.attention").at("post").at("mean_size");
  EXPECT_NEAR(sizes.at("query_gate").get<double>(), sum / pairs, 1e-6);
}

TEST(Composition, AStaticMapHasNoOtherTerms) {
  const Findings composition = found(small_model(composed("static")), "composition", kText);
  const Json& sizes = composition.metrics.at("layer0.attention").at("pre").at("mean_size");
  EXPECT_GT(sizes.at("base").get<double>(), 0.0);
  for (const std::string term : {"query_low_rank", "query_gate", "key_low_rank", "key_gate"}) {
    EXPECT_EQ(sizes.at(term).get<double>(), 0.0) << term;
  }
  EXPECT_EQ(composition.summary, "pre: the map is the same for all tokens; post: the map is the same for all tokens");
  for (const Figure& figure : composition.figures) {
    EXPECT_FALSE(figure.caption.starts_with("terms")) << figure.caption;
  }
}

// The chosen key and the low-rank term of the key must follow from the factors.
TEST(Composition, ShowsTheSelectedKey) {
  const store::OpenedModel opened = small_model(composed());
  const nn::Recorder values = small::recorded(opened, kText);
  for (const std::int64_t key : {0, 5}) {
    const Findings composition = found(opened, "composition", kText, {.key = key});
    for (const std::string stage : {"pre", "post"}) {
      const std::string layer = "layer1.attention", name = layer + "." + stage;
      const Json& pair = composition.metrics.at(layer).at(stage).at("pair");
      EXPECT_EQ(pair.at("key_place"), key);
      const at::Tensor before = composition.tensors.at(name + ".query_before"),
                       u = composition.tensors.at(name + ".key_factors").select(1, key).view({-1, 4}),
                       w = composition.tensors.at(name + ".key_outputs").select(1, key).view({-1, 4});
      const std::string what = stage == "pre" ? ".scores" : ".probs";
      EXPECT_TRUE(before.equal(values.at(layer + what)[0].select(1, 11)));
      EXPECT_TRUE(
          composition.tensors.at(name + ".query_after").equal(values.at(layer + what + "_composed")[0].select(1, 11)));
      const at::Tensor term = u.mv(before.select(1, key)).unsqueeze(0).mm(w)[0];
      const auto expected = pair.at("key_low_rank").get<std::vector<double>>();
      EXPECT_TRUE(at::allclose(term, at::tensor(expected).to(at::kFloat), 1e-4, 1e-5)) << name;
      EXPECT_EQ(composition.tensors.at(name + ".query_factors").sizes().vec(), (std::vector<std::int64_t>{8, 12}));
    }
  }
  EXPECT_THROW(found(opened, "composition", kText, {.key = 12}), UserError);
}

// The factor u of each rank is divided by its root mean square.
TEST(Composition, FactorsOfKeysAreNormalised) {
  const Findings composition = found(small_model(composed()), "composition", kText);
  const at::Tensor factors = composition.tensors.at("layer0.attention.post.key_factors");  // [R H, S]
  ASSERT_EQ(factors.sizes().vec(), (std::vector<std::int64_t>{8, 12}));
  const at::Tensor size = factors.view({2, 4, 12}).square().mean(1);
  EXPECT_TRUE(at::allclose(size, at::ones_like(size), 1e-2, 1e-2));
}

}  // namespace headroom::analyse::composition_test
