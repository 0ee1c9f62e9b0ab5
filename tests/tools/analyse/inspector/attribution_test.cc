// For all combinations of parts, contributions sum to the layer's output, and removing a part changes the output by its
// contribution.
#include "tools/analyse/inspector/attribution.h"

#include "engine/nn/combinations.h"
#include "engine/nn/layer.h"
#include "headroom/config/part_options.h"
#include "one_thread.h"
#include "tools/analyse/inspector/inspector.h"

namespace headroom::inspector::attribution_test {

struct AttributedLayer : nn::Layer {
  config::ModelOptions model;
  bool own_values = false;  // values are computed from other vectors than keys
  at::ScalarType type;

  explicit AttributedLayer(const config::ModelOptions& m, at::ScalarType with = at::kDouble)
      : Layer(m.attention, nn::place_in(m), with, /*noise=*/0.4), model(m), type(with) {}

  at::Tensor run(nn::Observer* observer) const {
    const at::NoGradGuard no_grad;
    const at::Tensor all =
        at::randn({1, model.memory_length + model.context_length, model.d_model},
                  at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{5}), at::TensorOptions(type));
    nn::AttentionInput input;
    input.source = all;
    input.x = model.memory_length == 0 ? all : all.narrow(1, model.memory_length, model.context_length);
    if (own_values) {
      input.source_value = all.cos();
    }
    nn::Context context;
    context.observer = observer;
    return attention(input, context)[0];
  }

  Attribution attributed() const {
    nn::Recorder recorder(attributed_values(model.attention));
    run(&recorder);
    return attribute(recorder.values, {.options = model.attention,
                                       .parameters = parameters,
                                       .scope = "",
                                       .causal = model.kind == config::ModelKind::language_model,
                                       .window = model.attention.window});
  }
};

// Changes one value of a forward pass.
struct SwitchOff : nn::Observer {
  std::string name;
  std::function<at::Tensor(at::Tensor)> change;
  SwitchOff(std::string of, std::function<at::Tensor(at::Tensor)> by) : name(std::move(of)), change(std::move(by)) {}
  bool wants(std::string_view wanted) const override { return wanted == name; }
  at::Tensor observe(std::string_view, at::Tensor value) override { return change(value.clone()); }
};

bool is_inspectable(const config::ModelOptions& m) {
  try {
    config::ModelOptions reads = m;  // the layer alone, for every kind of model
    reads.kind = config::ModelKind::language_model;
    require_inspectable(reads);
  } catch (const UserError&) {
    return false;
  }
  return true;
}

// Output gates are combined with fewer parts: they affect only the head outputs.
void for_each_combination(const testing::Visit& visit) {
  const auto legal = [&](const std::string& names, const config::ModelOptions& m) {
    if (testing::refusal(m).empty() && is_inspectable(m)) {
      visit(names, m);
    }
  };
  testing::for_products(testing::all_axes(), legal);
  const std::vector<testing::Choice> gated[] = {testing::gated_projections(), testing::compositions(),
                                                testing::masks()};
  testing::for_products(gated, legal);
}

// Returns 0 for a token to which no head writes.
at::Tensor unit_of(const Attribution& a) {
  const at::Tensor length = a.out.norm(2, {-1}, true);
  return a.out / length.masked_fill(length.eq(0.0), 1.0);
}

double largest(const at::Tensor& t) {
  return t.abs().max().item<double>();
}

// Returns the largest error of the sum. In exclusive layers, the error is relative to the output before the tokens' own
// values are removed, because little may remain.
double error_of_sum(const Attribution& a) {
  if (!a.exclusive) {
    return largest(residual_of(a));
  }
  Attribution whole = a;
  whole.exclusive = false;
  const at::Tensor error = (sum_of(a) - a.out.to(at::kDouble)).norm(2, {-1});
  return largest(error / sum_of(whole).norm(2, {-1}));
}

TEST(Attribution, ContributionsSumToTheOutputForAllCombinations) {
  std::int64_t n = 0;
  for_each_combination([&](const std::string& name, const config::ModelOptions& m) {
    ++n;
    const AttributedLayer layer(m);
    const Attribution a = layer.attributed();
    EXPECT_LE(error_of_sum(a), 1e-12) << name;
    EXPECT_LE(largest(a.out - layer.run(nullptr)), 1e-12) << name << ": the output that is not observed";
    const at::Tensor unit = unit_of(a), sum = sizes(a, readout(a, unit), 0, a.n_queries()).sum({0, 2, 3, 4});
    const at::Tensor expected = a.out.norm(2, {-1}) - (a.rest * unit).sum(-1);
    EXPECT_LE(largest(sum - expected), 1e-11 * largest(a.out)) << name;
    for (const Decomposition& split : decompose_weights(a, 1, a.n_queries() - 1)) {
      EXPECT_EQ(split.weights.size(0), std::ssize(split.terms)) << name;
      const at::Tensor whole = a.weights.narrow(1, 1, a.n_queries() - 1);
      EXPECT_LE(largest(split.weights.sum(0) - whole), 1e-12 * (1.0 + largest(split.weights)))
          << name << ": " << split.name;
    }
  });
  EXPECT_GT(n, 500);
}

TEST(Attribution, OfValuesFromOtherVectorsThanKeys) {
  for (const char* projection : {"dense", "experts"}) {
    config::ModelOptions m = testing::small_model();
    m.attention.projection = projection;
    AttributedLayer layer(m);
    layer.own_values = true;
    EXPECT_LE(largest(residual_of(layer.attributed())), 1e-12) << projection;
  }
}

TEST(Attribution, InFloat32TheErrorIsRounding) {
  std::int64_t n = 0;
  for_each_combination([&](const std::string& name, const config::ModelOptions& m) {
    if (n++ % 7 == 0) {
      EXPECT_LE(error_of_sum(AttributedLayer(m, at::kFloat).attributed()), 1e-5) << name;
    }
  });
}

// Removes one weight, one routed value expert or one routed output expert.
TEST(Attribution, RemovingAPartRemovesItsContributions) {
  std::int64_t edges = 0, experts = 0, seen = 0;
  for_each_combination([&](const std::string& name, const config::ModelOptions& m) {
    const bool normed =
        m.attention.composition == "differential" &&
        m.attention.of<config::DifferentialOptions>().differential_version == 1;  // changes with the part
    if (m.memory_length > 0 || !m.attention.score->has_scores() || normed || seen++ % 3 != 0) {
      return;
    }
    const AttributedLayer layer(m);
    const Attribution a = layer.attributed();
    const at::Tensor unit = unit_of(a), all = sizes(a, readout(a, unit), 0, a.n_queries());
    const auto expect_lacking = [&](SwitchOff off, const at::Tensor& size, const std::string& what,
                                    std::int64_t but = -1) {
      const at::Tensor lacks = ((a.out - layer.run(&off)) * unit).sum(-1);
      if (but >= 0) {
        lacks[but] = size[but];
      }
      EXPECT_LE(largest(lacks - size), 1e-11 * (1.0 + largest(a.out))) << name << ": " << what;
    };
    const std::int64_t i = a.n_queries() - 1, j = i - 1, h = all.size(0) - 1;
    at::Tensor edge = at::zeros({a.n_queries()}, all.options());
    edge[i] = all[h][i][j].sum();
    expect_lacking({"probs_composed", [&](at::Tensor p) { return p[0][h][i].index_fill_(0, at::tensor(j), 0.0), p; }},
                   edge, "edge");
    ++edges;
    if (m.attention.has_experts('v') && !m.attention.has_experts('k') &&
        !m.attention.of<config::ExpertOptions>().shared_selection) {
      expect_lacking({"select_in.weight", [&](at::Tensor w) { return w[j][h][0].zero_(), w; }},
                     all[h].select(1, j).select(1, 0).sum(-1), "value expert",
                     /*but=*/a.exclusive ? j : -1);  // the token whose own value changes
      ++experts;
    }
    if (m.attention.has_experts('o') && !m.attention.has_experts('q') &&
        !m.attention.of<config::ExpertOptions>().shared_selection) {
      at::Tensor lost = at::zeros({a.n_queries()}, all.options());
      lost[i] = all[h][i].select(-1, 1).sum();
      expect_lacking({"select_out.weight", [&](at::Tensor w) { return w[i][h][1].zero_(), w; }}, lost, "output expert");
      ++experts;
    }
  });
  EXPECT_GT(edges, 100);
  EXPECT_GT(experts, 20);
}

// The terms of the scores sum to the layer's scores; the weights of the first term are its softmax.
TEST(Attribution, TermsBeforeTheSoftmaxMatchTheComposedScores) {
  config::ModelOptions m = testing::small_model();
  m.attention.composition = "dynamic";
  m.attention.of<config::CompositionOptions>().compose_static = true;
  const AttributedLayer layer(m);
  nn::Recorder recorder({"scores", "scores_composed", "probs"});
  layer.run(&recorder);
  const Attribution a = layer.attributed();
  const std::int64_t t = a.n_queries();
  const Decomposition scores = decompose_scores(a, 0, t);
  EXPECT_EQ(scores.terms, (std::vector<std::string>{"own", "fixed map", "query, low rank", "query, gate",
                                                    "key, low rank", "key, gate"}));
  EXPECT_LE(largest(scores.weights.sum(0) - recorder.at("scores_composed")[0]), 1e-12);
  EXPECT_TRUE(scores.weights[0].equal(recorder.at("scores")[0]));
  const std::vector<Decomposition> splits = decompose_weights(a, 0, t);
  ASSERT_EQ(splits.size(), 2U);
  EXPECT_EQ(splits[0].name, "before the softmax");
  Attribution plain = a;
  plain.post.reset();
  const at::Tensor future = at::ones({t, t}, at::kBool).triu(1);
  const at::Tensor own = recorder.at("scores")[0].masked_fill(future, -INFINITY).softmax(-1);
  EXPECT_LE(largest(decompose_weights(plain, 0, t)[0].weights[0] - own), 1e-12);
}

// A masked key has no weight in the softmax of any term.
TEST(Attribution, TermsBeforeTheSoftmaxLeaveOutMaskedKeys) {
  for (const char* mask : {"i - j < 2", "i - j < h + 1 or j < 1", "i != 1"}) {
    config::ModelOptions m = testing::small_model();
    m.attention.composition = "dynamic";
    m.attention.of<config::DotOptions>().mask = mask;
    const AttributedLayer layer(m);
    nn::Recorder recorder({"scores", "probs"});
    layer.run(&recorder);
    Attribution a = layer.attributed();
    a.post.reset();
    const std::int64_t t = a.n_queries();
    const at::Tensor hidden = recorder.at("probs")[0].eq(0.0), blind = hidden.all(-1, /*keepdim=*/true);
    EXPECT_GT(hidden.sum().item<std::int64_t>(), hidden.size(0) * t * (t - 1) / 2) << mask;
    const at::Tensor own = recorder.at("scores")[0].masked_fill(hidden, -INFINITY).softmax(-1).masked_fill(blind, 0.0);
    EXPECT_LE(largest(decompose_weights(a, 0, t)[0].weights[0] - own), 1e-12) << mask;
  }
}

TEST(Attribution, AMissingValueIsNamed) {
  const AttributedLayer layer(testing::small_model());
  nn::Recorder recorder({"out", "probs"});
  layer.run(&recorder);
  try {
    attribute(recorder.values, {.options = layer.model.attention, .parameters = layer.parameters, .scope = ""});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "attribution: v was not observed");
  }
}

}  // namespace headroom::inspector::attribution_test
