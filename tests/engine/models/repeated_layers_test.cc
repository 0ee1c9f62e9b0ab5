// Tests MoEUT: repeated layers (n_groups), and norms only before attention scores and routing (norm_position "peri").

#include "engine/models/block.h"
#include "engine/nn/combinations.h"
#include "engine/nn/linear.h"
#include "engine/ops/gradients.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "one_thread.h"
#include "small_models.h"

namespace headroom::models::repeated_layers_test {

using testing::relative_error;

config::ModelOptions options(std::int64_t n_groups) {
  config::ModelOptions o = testing::moeut();
  o.n_layers = 4;
  o.n_groups = n_groups;
  return o;
}

// Returns the parameter's name in the model of two groups: "layer1.norm_1.scale" for "layer3.norm_1.scale".
std::string grouped_name(std::string name) {
  if (name.starts_with("layer")) {
    name[5] = static_cast<char>('0' + (name[5] - '0') % 2);
  }
  return name;
}

// Copies the parameters of layers 0 and 1 to layers 2 and 3 as well.
template <class Built>
void copy_groups(const Built& grouped, const Built& unrolled) {
  const at::NoGradGuard no_grad;
  for (const nn::Parameter& p : unrolled.parameters().all()) {
    at::Tensor to = p.tensor;
    to.copy_(grouped.parameters().at(grouped_name(p.name)));
  }
}

TEST(RepeatedLayers, AreTheLayersWrittenOutWithAllGradients) {
  for (const std::int64_t memory_length : {0, 8}) {
    config::ModelOptions two = options(2), four = options(0);
    two.memory_length = four.memory_length = memory_length;
    const LanguageModel grouped(two, 3, at::kDouble), unrolled(four, 4, at::kDouble);
    copy_groups(grouped, unrolled);
    at::manual_seed(5);
    const at::Tensor tokens = at::randint(two.vocabulary_size, {2, two.context_length + 1}, at::kLong);
    Memory memories[2];
    Loss losses[2];
    const LanguageModel* models[2] = {&grouped, &unrolled};
    for (const int chunk : {0, 1}) {
      for (const int i : {0, 1}) {
        losses[i] = models[i]->loss(chunk == 0 ? tokens : tokens.flip(1), memories[i], {});
      }
    }
    EXPECT_EQ(memories[0].layers.size(), memory_length > 0 ? 4U : 0U);
    for (const int i : {0, 1}) {
      losses[i].total().backward();
    }
    EXPECT_LE(relative_error(losses[0].total(), losses[1].total()), 1e-14);
    std::map<std::string, at::Tensor> sums;
    for (const nn::Parameter& p : unrolled.parameters().all()) {
      at::Tensor& sum = sums[grouped_name(p.name)];
      sum = sum.defined() ? sum + p.tensor.grad() : p.tensor.grad();
    }
    ASSERT_EQ(sums.size(), grouped.parameters().all().size());
    for (const nn::Parameter& p : grouped.parameters().all()) {
      EXPECT_LE(relative_error(p.tensor.grad(), sums.at(p.name)), 1e-12) << p.name;
    }
  }
}

// Values are projected from another input than keys. Configs refuse projections that do not support this.
TEST(RepeatedLayers, HaveAnyProjectionThatIsNotRefused) {
  std::int64_t n_run = 0;
  for (const testing::Choice& projection : testing::projections()) {
    config::ModelOptions o =
        tiny::changed(testing::small_model(), "", "norm_position=peri mlp.kind=experts mlp.n_experts=3 mlp.top_k=2");
    projection.set(o);
    if (testing::refusal(o).empty()) {
      const LanguageModel model(o, 1);
      Memory memory;
      const at::Tensor tokens = at::arange(o.context_length + 1).unsqueeze(0);
      EXPECT_TRUE(at::isfinite(model.loss(tokens, memory, {}).total()).item<bool>()) << projection.name;
      ++n_run;
    }
  }
  EXPECT_GT(n_run, 8);
}

TEST(RepeatedLayers, HaveParametersOfGroupsAndCachesOfLayers) {
  const at::NoGradGuard no_grad;
  const config::ModelOptions two = options(2), four = options(0);
  const LanguageModel grouped(two, 3), unrolled(four, 3);
  const auto count = [](const config::ModelOptions& o) { return LanguageModel(o, 3).parameters().count(); };
  EXPECT_EQ(count(four) - count(two), 2 * (count(two) - count(options(1))));
  EXPECT_EQ(grouped.start_decoding().caches.size(), 4U);
  const auto cached = [](const LanguageModel& model) {
    std::vector<DecodeState> state(1, model.start_decoding());
    testing::decode(model, at::zeros({1, 3}, at::kLong), state);
    return state[0].cache_elements();
  };
  EXPECT_EQ(cached(grouped), cached(unrolled));
}

TEST(RepeatedLayers, OfAnEncoder) {
  const at::NoGradGuard no_grad;
  config::ModelOptions two = options(2), four = options(0);
  for (config::ModelOptions* o : {&two, &four}) {
    o->kind = config::ModelKind::classifier;
    o->n_classes = 3;
  }
  const Classifier grouped(two, 3, at::kDouble), unrolled(four, 4, at::kDouble);
  copy_groups(grouped, unrolled);
  Batch batch;
  at::manual_seed(5);
  batch.tensors["tokens"] = at::randint(1, two.vocabulary_size, {2, two.context_length}, at::kLong);
  EXPECT_LE(relative_error(grouped.class_logits(batch, {}), unrolled.class_logits(batch, {})), 1e-14);
}

// h = x + attention(queries, keys and routing from norm_1(x), values from x); y = h + mlp(h, routing from norm_2(h)).
TEST(PeriNorm, NormalisesQueriesKeysAndRouting) {
  const at::NoGradGuard no_grad;
  const config::ModelOptions o = testing::moeut();
  const nn::AttentionPlace place{.d_model = o.d_model, .n_layers = o.n_layers, .context_length = o.context_length};
  nn::Parameters parameters;
  const Block block(o, place, nn::Builder(parameters, nn::ParameterSource(3, at::kDouble)));
  for (const nn::Parameter& p : parameters.all()) {
    at::Tensor(p.tensor).add_(at::randn_like(p.tensor), 0.3);
  }
  at::manual_seed(5);
  const at::Tensor all = at::randn({2, 2 * o.context_length, o.d_model}, at::kDouble) * 3.0;
  const at::Tensor memory = all.narrow(1, 0, o.context_length), x = all.narrow(1, o.context_length, o.context_length);
  const auto norm = [&](const char* name, const at::Tensor& h) {
    return at::layer_norm(h, {o.d_model}, parameters.at(std::string(name) + ".scale"),
                          parameters.at(std::string(name) + ".bias"), o.norm_epsilon);
  };
  const auto gates = [](const at::Tensor& score, std::int64_t k) {  // [.., E]; other experts have gate 0
    const auto [top, index] = score.topk(k, -1);
    return at::zeros_like(score).scatter(-1, index, top.sigmoid());
  };
  const auto at = [&](const char* name) { return parameters.at(name); };
  const at::Tensor u = norm("norm_1", all), own = norm("norm_1", x);
  const std::int64_t t = o.context_length, k = o.attention.of<config::RoutingOptions>().top_k;
  const auto rotated = [&](const at::Tensor& heads, std::int64_t first) {
    const auto channels = static_cast<std::int64_t>(0.5 * static_cast<double>(o.attention.d_head));
    return nn::Rotary{.channels = channels}(heads, first);
  };
  const at::Tensor q = rotated(at::einsum("btd,dhe->bhte", {own, at("attention.w_q")}), t),
                   keys = rotated(at::einsum("bsd,dhe->bhse", {u, at("attention.w_k")}), 0);
  const at::Tensor by_source = gates(at::einsum("bsd,dhx->bshx", {u, at("attention.select_in")}), k),
                   by_query = gates(at::einsum("btd,dhx->bthx", {own, at("attention.select_out")}), k);
  const at::Tensor v = at::einsum("bshx,bsd,hxde->bhse", {by_source, all, at("attention.w_v")});
  const at::Tensor hidden = at::ones({t, 2 * t}, at::kBool).triu(t + 1);
  const at::Tensor p = (q.matmul(keys.transpose(2, 3)) / std::sqrt(static_cast<double>(o.attention.d_head)))
                           .masked_fill(hidden, -INFINITY)
                           .softmax(-1);
  const at::Tensor h = x + at::einsum("bthx,bhte,hxed->btd", {by_query, p.matmul(v), at("attention.w_o")});
  const at::Tensor by_mlp = gates(norm("norm_2", h).matmul(at("ffn.select")), o.mlp.top_k);
  const at::Tensor expected =
      h + at::einsum("btx,btxg,xgd->btd",
                     {by_mlp, at::einsum("btd,xdg->btxg", {h, at("ffn.w_up")}).relu(), at("ffn.w_down")});
  EXPECT_LE(relative_error(block({.h = x, .memory = memory}, {}), expected), 1e-12);
}

// The loss is the negative entropy of each head's mean routing, averaged over heads, for values and for outputs.
TEST(PeriNorm, BalancesTheRoutingOfExpertHeads) {
  const at::NoGradGuard no_grad;
  const config::ModelOptions o = testing::moeut();
  nn::Parameters parameters;
  const nn::Attention attention(o.attention, {.d_model = o.d_model, .context_length = o.context_length},
                                nn::Builder(parameters, nn::ParameterSource(3, at::kDouble)));
  at::manual_seed(5);
  const at::Tensor x = at::randn({2, o.context_length, o.d_model}, at::kDouble) * 2.0;
  std::map<std::string, at::Tensor> losses;
  const nn::Context context{.losses = &losses};
  attention({.x = x}, context);
  double expected = 0.0;
  for (const char* router : {"select_in", "select_out"}) {
    const at::Tensor mean = at::einsum("btd,dhx->bthx", {x, parameters.at(router)}).softmax(-1).mean({0, 1});
    expected += (mean * mean.log()).sum(-1).mean().item<double>();
  }
  EXPECT_NEAR(losses.at("routing_entropy").item<double>(), expected, 1e-12);
}

TEST(PeriNorm, RefusesUnsupportedLayers) {
  nn::Parameters parameters;
  const nn::Builder build(parameters, nn::ParameterSource(3));
  config::ModelOptions o = testing::moeut();
  const nn::AttentionPlace place{.d_model = o.d_model, .context_length = o.context_length};
  o.arrangement = config::Arrangement::parallel;
  EXPECT_THROW(Block(o, place, build), UserError);
  o = testing::moeut();
  o.attention.position = "none";
  EXPECT_THROW(Block::with_cross_attention(o, place, build), UserError);
}

}  // namespace headroom::models::repeated_layers_test
