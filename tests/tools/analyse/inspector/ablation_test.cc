// The output lacks the contributions of ablated parts, and the remaining contributions still sum to the output.
#include "tools/analyse/inspector/ablation.h"

#include "folder_test.h"
#include "headroom/models/language_model.h"
#include "tools/analyse/inspector/attribution.h"
#include "tools/analyse/inspector/predictions.h"
#include "tools/analyse/small_model.h"

namespace headroom::inspector::ablation_test {

config::ModelOptions ablated_model(const char* projection, const char* score = "dot",
                                   const char* composition = "none") {
  config::ModelOptions o = analyse::small::two_layers(30, 12);
  analyse::small::set_projection(o.attention, projection);
  o.attention.score = score;
  o.attention.composition = composition;
  return o;
}

config::ModelOptions groups_of_heads() {
  config::ModelOptions o = ablated_model("dense");
  analyse::small::set_groups_of_heads(o.attention);
  o.attention.bias = false;  // an expert's bias is no contribution of a source token
  return o;
}

// Layer 0 has two heads of linear attention, layer 1 three heads with experts.
config::ModelOptions layers_that_differ() {
  config::ModelOptions o = ablated_model("dense", "linear");
  o.layers = {{.repeat = 1, .attention = {}, .mlp = {}},
              {.repeat = 1,
               .attention = {{"score", "\"dot\""}, {"projection", "\"experts\""}, {"n_heads", "3"}, {"top_k", "2"}},
               .mlp = {}}};
  return o;
}

at::Tensor some_tokens() {
  return at::arange(12, at::kLong).mul(7).remainder(30).unsqueeze(0);
}

// Returns the attribution of layer 1 with ablations.
Attribution attribution_without(const models::LanguageModel& model, const char* off) {
  const config::AttentionOptions a = model.options().of_layer(1).attention;
  std::vector<std::string> names = attributed_values(a);
  for (std::string& name : names) {
    name.insert(0, "layer1.attention.");
  }
  nn::Recorder recorder(names);
  AblationObserver ablation(parse_ablations(parse_sorted_json(off, "test"), model.options(), 12), model.options());
  ObserverChain both(&ablation, recorder);
  nn::Context context;
  context.observer = &both;
  models::Memory memory;
  model.logits(some_tokens(), memory, context);
  LayerValues values;
  for (const auto& [name, value] : recorder.values) {
    values[name.substr(std::string("layer1.attention.").size())] = value;
  }
  return attribute(values, {.options = a, .parameters = model.parameters(), .scope = "layer1.attention."});
}

TEST(Ablation, TheOutputLacksTheContributions) {
  const at::NoGradGuard no_grad;
  struct Case {
    config::ModelOptions model;
    const char* off;
    std::function<at::Tensor(const Attribution&, const at::Tensor& sizes)> lost;  // [T]
  };
  const auto by_expert = [](const at::Tensor& all, std::int64_t head, const at::Tensor& hit) {
    return (all[head] * hit).sum({1, 2, 3});
  };
  const std::vector<Case> cases = {
      {ablated_model("dense"), R"([{"layer": 1, "head": 0}])",
       [](const auto&, const auto& all) {
         return all[0].sum({1, 2, 3});
       }},
      {ablated_model("dense", "linear"), R"([{"layer": 1, "head": 1}])",
       [](const auto&, const auto& all) {
         return all[1].sum({1, 2, 3});
       }},
      {ablated_model("dense", "gaussian_mixture"), R"([{"layer": 1, "head": 1, "query": 9, "source": 4}])",
       [](const auto&, const auto& all) {
         at::Tensor lost = at::zeros({12});
         lost[9] = all[1][9][4].sum();
         return lost;
       }},
      {ablated_model("experts"), R"([{"layer": 1, "head": 1, "value_expert": 2}])",
       [&](const auto& a, const auto& all) {
         return by_expert(all, 1, a.value_expert[1].eq(2).unsqueeze(0).unsqueeze(3));
       }},
      {layers_that_differ(), R"([{"layer": 1, "head": 1, "value_expert": 2}])",
       [&](const auto& a, const auto& all) {
         return by_expert(all, 1, a.value_expert[1].eq(2).unsqueeze(0).unsqueeze(3));
       }},
      {layers_that_differ(), R"([{"layer": 1, "head": 2}])",
       [](const auto&, const auto& all) {
         return all[2].sum({1, 2, 3});
       }},
      {ablated_model("experts"), R"([{"layer": 1, "head": 0, "output_expert": 1}])",
       [&](const auto& a, const auto& all) {
         return by_expert(all, 0, a.output_expert[0].eq(1).unsqueeze(1).unsqueeze(2));
       }},
      {ablated_model("routed_heads"), R"([{"layer": 1, "expert": 2}])",
       [&](const auto& a, const auto& all) {
         return (all * a.output_expert.eq(2).unsqueeze(2).unsqueeze(3)).sum({0, 2, 3, 4});
       }},
      {ablated_model("routed_queries"), R"([{"layer": 1, "expert": 4}])",
       [&](const auto& a, const auto& all) {
         return (all * a.output_expert.eq(4).unsqueeze(2).unsqueeze(3)).sum({0, 2, 3, 4});
       }},
      {groups_of_heads(), R"([{"layer": 1, "expert": 2}])",
       [&](const auto& a, const auto& all) {
         return (all * a.output_expert.eq(2).unsqueeze(2).unsqueeze(3)).sum({0, 2, 3, 4});
       }},
      {ablated_model("dense", "dot", "dynamic"), R"([{"layer": 1, "stage": "after", "term": "key, low rank"}])",
       [&](const auto& a, const auto& all) {
         const std::vector<Decomposition> splits = decompose_weights(a, 0, 12);
         const at::Tensor each = all.sum({3, 4}) / a.weights.masked_fill(a.weights.eq(0.0), 1.0);
         return (splits.at(1).weights[3] * each).sum({0, 2});
       }}};
  for (const Case& one : cases) {
    const models::LanguageModel model(one.model, 5);
    const Attribution whole = attribution_without(model, "[]"), less = attribution_without(model, one.off);
    const at::Tensor unit = whole.out / whole.out.norm(2, {-1}, true);
    const at::Tensor lost = one.lost(whole, sizes(whole, readout(whole, unit), 0, 12));
    EXPECT_GT(lost.abs().max().item<double>(), 1e-4) << one.off;
    EXPECT_LE((((whole.out - less.out) * unit).sum(-1) - lost).abs().max().item<double>(), 1e-5) << one.off;
    EXPECT_LE(residual_of(less).max().item<double>(), 1e-5) << one.off;
  }
}

TEST(Ablation, ATermOfTheScores) {
  const at::NoGradGuard no_grad;
  const models::LanguageModel model(ablated_model("dense", "dot", "dynamic"), 5);
  const Attribution less = attribution_without(model, R"([{"layer": 1, "stage": "before", "term": "query, gate"}])");
  EXPECT_EQ(less.pre->names, (std::vector<std::string>{"own", "query, low rank", "key, low rank", "key, gate"}));
  const at::Tensor scores = decompose_scores(less, 0, 12).weights.sum(0);
  const at::Tensor future = at::ones({12, 12}, at::kBool).triu(1);
  EXPECT_LE((scores.masked_fill(future, -INFINITY).softmax(-1) - less.probs).abs().max().item<double>(), 1e-6);
  EXPECT_LE(residual_of(less).max().item<double>(), 1e-5);
}

TEST(Ablation, InvalidOnesAreRefused) {
  const auto refused = [](const char* off, const config::ModelOptions& model, const std::string& field,
                          const std::string& found) {
    const std::string text = user_error_of([&] { parse_ablations(parse_sorted_json(off, "test"), model, 12); });
    EXPECT_EQ(text.find("switched_off: " + field), 0U) << text;
    EXPECT_HAS(text, found);
  };
  const config::ModelOptions dense = ablated_model("dense"), linear = ablated_model("dense", "linear");
  EXPECT_NO_THROW(parse_ablations(parse_sorted_json("[]", "test"), dense, 12));
  refused("{}", dense, "", "a list of at most 256");
  refused(R"([{"layer": 2, "head": 0}])", dense, "layer:", "got 2");
  refused(R"([{"layer": 0, "head": -1}])", dense, "head:", "got -1");
  refused(R"([{"layer": 0}])", dense, "", "each object must have a layer");
  refused(R"([{"layer": 0, "head": 0, "value_expert": 1}])", dense, "value_expert:", "no value experts");
  refused(R"([{"layer": 0, "expert": 1}])", dense, "expert:", "no routed heads");
  refused(R"([{"layer": 0, "expert": 3}])", groups_of_heads(), "expert:", "got 3");
  refused(R"([{"layer": 0, "head": 0, "query": 1, "source": 0}])", linear, "query:", "no attention matrix");
  refused(R"([{"layer": 0, "stage": "before", "term": "key, gate"}])", dense, "stage:", "before the softmax");
  refused(R"([{"layer": 0, "stage": "between", "term": "key, gate"}])", dense, "stage:", "\"before\"");
}

}  // namespace headroom::inspector::ablation_test
