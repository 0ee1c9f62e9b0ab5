// Tests the observed values of an attention layer, and the effect of replacing them.
#include "headroom/nn/observer.h"

#include "headroom/nn/mlp.h"
#include "headroom/ops/choice.h"
#include "layer.h"

namespace headroom::nn::observer_test {

constexpr std::int64_t kRows = 2, kTokens = 7, kWidth = 12, kHeads = 4, kHead = 6;

using Names = std::set<std::string, std::less<>>;
using Change = std::function<at::Tensor(std::string_view, at::Tensor)>;

// Replaces the values with these names.
struct Changes : Observer {
  Names names;
  Change change;
  mutable std::int64_t asked = 0;
  std::int64_t seen = 0;

  explicit Changes(Names wanted, Change with = {}) : names(std::move(wanted)), change(std::move(with)) {}
  bool wants(std::string_view name) const override {
    ++asked;
    return names.contains(name);
  }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    ++seen;
    return change ? change(name, std::move(value)) : value;
  }
};

config::AttentionOptions small(const std::string& more = "") {
  return attention_options(fmt::format("n_heads={} d_head={} n_experts=5 top_k=2 {}", kHeads, kHead, more));
}

at::Tensor input() {
  return at::randn({kRows, kTokens, kWidth}, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{4}), at::kFloat);
}

struct ObservedLayer : Layer {
  explicit ObservedLayer(const config::AttentionOptions& o)
      : Layer(o, {.d_model = kWidth, .context_length = kTokens}, at::kFloat) {}
  at::Tensor operator()(Observer* observer, Implementation implementation = Implementation::automatic) const {
    const Context context{.implementation = implementation, .observer = observer};
    return attention({.x = input()}, context);
  }
};

class Observed : public ::testing::Test {
  at::NoGradGuard no_grad_;
};

// Values must have the names and shapes that observer.h lists, and observing must not change results.
TEST_F(Observed, ValuesHaveTheirNamesAndShapes) {
  using Shapes = std::map<std::string, std::vector<std::int64_t>>;
  const std::vector<std::int64_t> head{kRows, kHeads, kTokens, kHead}, pair{kRows, kHeads, kTokens, kTokens};
  const std::vector<std::int64_t> map{kRows, kTokens, 2, kHeads, kHeads}, shared{kRows, 1, kTokens, kHead};
  const std::int64_t n = kRows * kTokens;
  const Shapes common = {{"q", head},
                         {"k", head},
                         {"v", head},
                         {"x", {kRows, kTokens, kWidth}},
                         {"source", {kRows, kTokens, kWidth}},
                         {"o", head},
                         {"scores", pair},
                         {"scores_composed", pair},
                         {"probs", pair},
                         {"probs_composed", pair},
                         {"out", {kRows, kTokens, kWidth}}};
  Shapes composed = common, experts = common, routed = common, mixture = common, linear = common;
  composed["key_map"] = composed["query_map"] = map;
  composed["key_terms"] = composed["query_terms"] = {kRows, kTokens, 2, 2, kHeads, kHeads};
  for (const std::string side : {"select_in", "select_out"}) {
    experts[side + ".score"] = {n, kHeads, 5};
    experts[side + ".index"] = experts[side + ".weight"] = {n, kHeads, 2};
  }
  routed["k"] = routed["v"] = shared;
  routed["q"] = routed["o"] = {kRows, 2, kTokens, kHead};
  for (const std::string_view name : kPairValues) {
    routed[std::string(name)] = {kRows, 2, kTokens, kTokens};
    if (name != "probs") {
      linear.erase(std::string(name));
    }
  }
  routed["select.score"] = {n, 1, 5};
  routed["select.index"] = routed["select.weight"] = {n, 1, 2};
  mixture["k2"] = linear["k2"] = head;
  mixture["responsibilities"] = {kRows, 2, kHeads, kTokens, kTokens};
  const std::vector<std::pair<config::AttentionOptions, Shapes>> layers = {
      {small(), common},
      {small("composition=dynamic"), composed},
      {small("projection=experts"), experts},
      {small("projection=routed_heads n_heads=2"), routed},
      {small("score=gaussian_mixture"), mixture},
      {small("score=linear"), linear}};
  for (const auto& [options, expected] : layers) {
    const ObservedLayer layer(options);
    Recorder recorder({"*", "*.*"});
    const at::Tensor y = layer(&recorder, Implementation::reference);
    EXPECT_TRUE(y.equal(layer(nullptr, Implementation::reference))) << options.projection.name();
    Shapes got;
    for (const auto& [name, value] : recorder.values) {
      got[name] = value.sizes().vec();
    }
    EXPECT_EQ(got, expected) << options.projection.name() << ", " << options.score.name();
  }
}

TEST_F(Observed, ValuesMatchTheLayer) {
  const ObservedLayer layer(small());
  Recorder recorder({"*"});
  const at::Tensor y = layer(&recorder);
  EXPECT_TRUE(y.equal(recorder.at("out")));
  EXPECT_TRUE(at::allclose(recorder.at("probs").matmul(recorder.at("v")), recorder.at("o"), 1e-5, 1e-6));
  const at::Tensor scores = recorder.at("q").matmul(recorder.at("k").transpose(2, 3)) / std::sqrt(double{kHead});
  EXPECT_TRUE(at::allclose(scores, recorder.at("scores"), 1e-5, 1e-6));
  const at::Tensor future = at::ones({kTokens, kTokens}, at::kBool).triu(1);
  EXPECT_TRUE(at::allclose(scores.masked_fill(future, -INFINITY).softmax(-1), recorder.at("probs"), 1e-5, 1e-6));
}

TEST_F(Observed, TheFusedPathIsUsedWherePossible) {
  const ObservedLayer layer(small("projection=experts composition=dynamic"));
  Recorder recorder({"q", "k", "v", "o", "out", "key_map", "query_map", "select*.*"});
  ops::reset_implementation_counts();
  EXPECT_TRUE(layer(&recorder, Implementation::fused).equal(layer(nullptr, Implementation::fused)));
  EXPECT_EQ(ops::implementation_counts()["attention"].fused, 2);
  EXPECT_EQ(ops::implementation_counts()["attention"].reference, 0);
  EXPECT_EQ(recorder.values.size(), 13U);
  Recorder pairs({"probs_composed"});
  EXPECT_THROW(layer(&pairs, Implementation::fused), UserError);
}

const Names kOnlyShown = {"x", "source", "gate", "responsibilities"};

// Replacing a value that the layer uses must change the output.
TEST_F(Observed, ResultsAreUsed) {
  std::int64_t changed = 0;
  for (const config::AttentionOptions& options :
       {small("projection=experts composition=dynamic"), small("projection=routed_heads"),
        small("projection=gated_heads"), small("score=gaussian_mixture"), small("score=sigmoid"),
        small("projection=experts shared_selection=true")}) {
    const ObservedLayer layer(options);
    Recorder all({"*", "*.*"});
    const at::Tensor y = layer(&all, Implementation::reference);
    for (const auto& [name, value] : all.values) {
      if (name.ends_with("_map") || name.ends_with("_terms") || kOnlyShown.contains(name)) {
        continue;
      }
      Changes change({name}, [](std::string_view, const at::Tensor& v) {
        return at::isFloatingType(v.scalar_type()) ? v * -1.5 + v.flip(-1) : (v + 1).remainder(4);
      });
      EXPECT_FALSE(at::allclose(layer(&change), y, 1e-4, 1e-4)) << options.projection.name() << ": " << name;
      ++changed;
    }
  }
  EXPECT_GE(changed, 60);
  Changes wrong({"o"}, [](std::string_view, const at::Tensor& o) { return o.narrow(1, 0, 1); });
  const ObservedLayer layer(small());
  EXPECT_THROW(layer(&wrong), Error);
}

// Gradients must flow through a replacement.
TEST(ObservedGradients, PassThroughChanges) {
  const ObservedLayer layer(small());
  Changes half({"o"}, [](std::string_view, const at::Tensor& o) { return o * 0.5; });
  const auto gradient = [&](Observer* observer) {
    const Context context{.observer = observer};
    const at::Tensor x = input().requires_grad_(true);
    layer.attention({.x = x}, context).sum().backward();
    return x.grad();
  };
  EXPECT_TRUE(at::allclose(gradient(&half), gradient(nullptr) * 0.5, 1e-5, 1e-6));
}

}  // namespace headroom::nn::observer_test
