// Reading the source layer by layer must give the values of a forward pass of the whole model.
#include "tools/convert/activations.h"

#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "headroom/models/language_model.h"
#include "tiny/options.h"

namespace headroom::convert::activations_test {

void expect_same(const std::string& attention, const std::string& rest) {
  const config::ModelOptions small =
      tiny::model({.vocabulary = 50, .n_layers = 3, .d_model = 16, .context_length = 8, .d_head = 8, .d_hidden = 24});
  const std::unique_ptr<models::Model> model = models::make_model(tiny::changed(small, attention, rest), 1);
  std::vector<models::Batch> batches;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    batches.push_back(model->example(2, seed));
  }
  const std::vector<std::string> names = {"attention.x", "attention.source", "attention.probs", "attention.out",
                                          "ffn.x",       "ffn.out"};
  LayerWalk walk(*model, batches);
  for (const std::int64_t layer : {0, 2}) {
    std::vector<std::string> full;
    for (const std::string& name : names) {
      full.push_back("layer" + std::to_string(layer) + "." + name);
    }
    models::Memory memory;
    std::vector<nn::Recorder> expected;
    const at::NoGradGuard guard;
    for (const models::Batch& batch : batches) {
      nn::Context context;
      context.observer = &expected.emplace_back(full);
      model->loss(batch, memory, context);
    }
    walk.go_to(layer);
    for (int again = 0; again < 2; ++again) {
      std::size_t batch = 0;
      walk.run(names, [&](const nn::Recorder& found) {
        for (const std::string& name : full) {
          ASSERT_EQ(found.at(name).sizes(), expected[batch].at(name).sizes()) << name;
          EXPECT_LT((found.at(name) - expected[batch].at(name)).abs().max().item<double>(), 1e-5)
              << name << " of batch " << batch;
        }
        ++batch;
      });
      EXPECT_EQ(batch, batches.size());
    }
  }
}

TEST(LayerWalkTest, GivesTheValuesOfTheForwardPass) {
  expect_same("", "");
  expect_same("window=4 window_pattern=1:1", "norm_position=post");
  expect_same("position=relative", "memory_length=8");
  expect_same("", "kind=masked_language_model");
}

}  // namespace headroom::convert::activations_test
