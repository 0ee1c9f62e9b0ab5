// For every part, cost counts the same parameters, hidden matrices and cache elements as a built model has.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "engine/nn/combinations.h"
#include "engine/ops/gradients.h"
#include "headroom/models/language_model.h"
#include "one_thread.h"
#include "small_models.h"
#include "training/cost/cost.h"

namespace headroom::models {
namespace part_counts_test {

using testing::Choice;

void expect_counts(const config::ModelOptions& m, const std::string& name) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(m, 1, at::kFloat);
  std::int64_t hidden = 0;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    hidden += parameter.hidden ? parameter.tensor.numel() : 0;
  }
  EXPECT_EQ(cost::count_parameters(m), model.parameters().count()) << name;
  EXPECT_EQ(cost::count_hidden_matrices(m), hidden) << name;
  std::vector<DecodeState> states = {model.start_decoding()};
  testing::decode(model, at::zeros({1, 1}, at::kLong), states, {});
  EXPECT_EQ(cost::decoding_cache_elements(m), states[0].cache_elements()) << name;
}

// Biases belong to projections: they are counted with one choice of the last axes, which are masks and positions.
int count_all(const std::vector<std::vector<Choice>>& axes) {
  int legal = 0;
  std::set<std::string> with_bias;
  std::vector<std::size_t> at(axes.size(), 0);
  for (bool more = true; more;) {
    config::ModelOptions m = testing::small_model();
    std::string name, first;  // first: without the last axes
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      axes[axis][at[axis]].set(m);
      first = axis + 2 == std::max<std::size_t>(axes.size(), 3) ? name : first;
      name += fmt::format("{}{}", name.empty() ? "" : " / ", axes[axis][at[axis]].name);
    }
    if (m.kind == config::ModelKind::language_model && testing::refusal(m).empty()) {
      for (const bool bias : {false, true}) {
        m.attention.bias = bias;
        if (testing::refusal(m).empty() && (!bias || with_bias.insert(first).second)) {
          ++legal;
          m.n_layers = 1;
          expect_counts(m, name + (bias ? " / bias" : ""));
        }
      }
    }
    more = false;
    for (std::size_t axis = 0; axis < axes.size() && !more; ++axis) {
      more = ++at[axis] < axes[axis].size();
      at[axis] = more ? at[axis] : 0;
    }
  }
  return legal;
}

TEST(PartCounts, AreThoseOfBuiltModels) {
  EXPECT_GT(count_all({testing::projections(), testing::scores(), testing::compositions(), testing::masks(),
                       testing::positions()}),
            1000);
}

TEST(PartCounts, WithOutputGates) {
  EXPECT_GE(count_all({testing::gated_projections(), testing::masks()}), 6);
}

TEST(PartCounts, OfLayersThatDiffer) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, m] : testing::two_layer_models()) {
    expect_counts(m, name);
    const LanguageModel model(m, 1, at::kDouble);
    at::manual_seed(1);
    const at::Tensor tokens = at::randint(m.vocabulary_size, {1, m.context_length}, at::kLong);
    std::vector<DecodeState> states = {model.start_decoding()};
    testing::decode(model, tokens.narrow(1, 0, 2), states);
    at::Tensor last;
    for (std::int64_t i = 2; i < m.context_length; ++i) {
      last = testing::decode(model, tokens.narrow(1, i, 1), states);
    }
    Memory memory;
    EXPECT_LE(testing::relative_error(last[0], model.logits(tokens, memory, {})[0][-1]), 1e-10) << name;
  }
}

}  // namespace part_counts_test
}  // namespace headroom::models
