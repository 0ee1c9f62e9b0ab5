// What is switched off is missing from the output, and the contributions of the others go on adding up.
#include "tools/inspector/switched_off.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "headroom/models/language_model.h"
#include "one_thread.h"
#include "tools/analyse/small_model.h"
#include "tools/inspector/attribution.h"

namespace headroom::inspect {
namespace switched_off_test {

config::ModelOptions switched_model(const char* projection, const char* score = "dot",
                                    const char* composition = "none") {
  config::ModelOptions o = small::two_layers(30, 12);
  o.attention.projection = projection;
  o.attention.score = score;
  o.attention.composition = composition;
  return o;
}

at::Tensor some_tokens() {
  return at::arange(12, at::kLong).mul(7).remainder(30).unsqueeze(0);
}

// Layer 1's attention with some of it switched off.
Attribution attribution_without(const models::LanguageModel& model, const char* off) {
  const config::AttentionOptions& a = model.options().attention;
  std::vector<std::string> names = attributed_values(a);
  for (std::string& name : names) {
    name.insert(0, "layer1.attention.");
  }
  struct Both : nn::Observer {
    nn::Recorder recorder;
    Switches switches;
    Both(std::vector<std::string> wanted, Switches s) : recorder(std::move(wanted)), switches(std::move(s)) {}
    bool wants(std::string_view name) const override { return recorder.wants(name) || switches.wants(name); }
    at::Tensor observe(std::string_view name, at::Tensor value) override {
      value = switches.wants(name) ? switches.observe(name, std::move(value)) : value;
      return recorder.wants(name) ? recorder.observe(name, std::move(value)) : value;
    }
  } both(names, Switches(read_switched_off(parse_sorted_json(off, "test"), model.options(), 12), a));
  nn::Context context;
  context.observer = &both;
  models::Memory memory;
  model.logits(some_tokens(), memory, context);
  LayerValues values;
  for (const auto& [name, value] : both.recorder.values) {
    values[name.substr(std::string("layer1.attention.").size())] = value;
  }
  return attribute(values, {.options = a, .parameters = model.parameters(), .scope = "layer1.attention."});
}

// Parts of the last layer: what its output lacks is what its contributions said.
TEST(SwitchedOff, TheOutputLacksItsContributions) {
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
      {switched_model("dense"), R"([{"layer": 1, "head": 0}])",
       [](const auto&, const auto& all) {
         return all[0].sum({1, 2, 3});
       }},
      {switched_model("dense", "linear"), R"([{"layer": 1, "head": 1}])",
       [](const auto&, const auto& all) {
         return all[1].sum({1, 2, 3});
       }},
      {switched_model("dense", "gaussian_mixture"), R"([{"layer": 1, "head": 1, "query": 9, "source": 4}])",
       [](const auto&, const auto& all) {
         at::Tensor lost = at::zeros({12});
         lost[9] = all[1][9][4].sum();
         return lost;
       }},
      {switched_model("experts"), R"([{"layer": 1, "head": 1, "value_expert": 2}])",
       [&](const auto& a, const auto& all) {
         return by_expert(all, 1, a.value_expert[1].eq(2).unsqueeze(0).unsqueeze(3));
       }},
      {switched_model("experts"), R"([{"layer": 1, "head": 0, "output_expert": 1}])",
       [&](const auto& a, const auto& all) {
         return by_expert(all, 0, a.output_expert[0].eq(1).unsqueeze(1).unsqueeze(2));
       }},
      {switched_model("routed_heads"), R"([{"layer": 1, "expert": 2}])",
       [&](const auto& a, const auto& all) {
         return (all * a.output_expert.eq(2).unsqueeze(2).unsqueeze(3)).sum({0, 2, 3, 4});
       }},
      {switched_model("dense", "dot", "dynamic"), R"([{"layer": 1, "stage": "after", "term": "key, low rank"}])",
       [&](const auto& a, const auto& all) {
         const std::vector<Split> splits = split_weights(a, 0, 12);
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

TEST(SwitchedOff, ATermOfTheScoresIsTakenFromThem) {
  const at::NoGradGuard no_grad;
  const models::LanguageModel model(switched_model("dense", "dot", "dynamic"), 5);
  const Attribution less = attribution_without(model, R"([{"layer": 1, "stage": "before", "term": "query, gate"}])");
  EXPECT_EQ(less.pre->names, (std::vector<std::string>{"own", "query, low rank", "key, low rank", "key, gate"}));
  const at::Tensor scores = split_scores(less, 0, 12).weights.sum(0);
  const at::Tensor future = at::ones({12, 12}, at::kBool).triu(1);
  EXPECT_LE((scores.masked_fill(future, -INFINITY).softmax(-1) - less.probs).abs().max().item<double>(), 1e-6);
  EXPECT_LE(residual_of(less).max().item<double>(), 1e-5);
}

TEST(SwitchedOff, WhatIsNotThereIsRefused) {
  const auto refusal = [](const char* off, const config::ModelOptions& model) -> std::string {
    try {
      read_switched_off(parse_sorted_json(off, "test"), model, 12);
    } catch (const UserError& error) {
      return error.what();
    }
    return {};
  };
  const config::ModelOptions dense = switched_model("dense"), linear = switched_model("dense", "linear");
  EXPECT_EQ(refusal("[]", dense), "");
  EXPECT_EQ(refusal("{}", dense), "switched_off: must be a list of at most 256 objects");
  EXPECT_EQ(refusal(R"([{"layer": 2, "head": 0}])", dense),
            "switched_off: layer: must be the number of one of the 2 layers, from 0 on, got 2");
  EXPECT_EQ(refusal(R"([{"layer": 0, "head": -1}])", dense),
            "switched_off: head: must be the number of one of the 2 heads, from 0 on, got -1");
  EXPECT_NE(refusal(R"([{"layer": 0}])", dense).find("each must be a layer with a head"), std::string::npos);
  EXPECT_NE(refusal(R"([{"layer": 0, "head": 0, "value_expert": 1}])", dense).find("have no experts"),
            std::string::npos);
  EXPECT_NE(refusal(R"([{"layer": 0, "expert": 1}])", dense).find("routes no token"), std::string::npos);
  EXPECT_NE(refusal(R"([{"layer": 0, "head": 0, "query": 1, "source": 0}])", linear).find("no weights of single pairs"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"([{"layer": 0, "stage": "before", "term": "key, gate"}])", dense).find("composes no heads before"),
      std::string::npos);
  EXPECT_NE(
      refusal(R"([{"layer": 0, "stage": "between", "term": "key, gate"}])", dense).find("must be one of \"before\""),
      std::string::npos);
}

}  // namespace switched_off_test
}  // namespace headroom::inspect
