// Reading the source layer by layer gives the values of its own forward pass.
#include "tools/convert/activations.h"

#include <gtest/gtest.h>

#include <functional>

#include "headroom/models/language_model.h"

namespace headroom::convert {
namespace {

void expect_same(const std::function<void(config::ModelOptions&)>& change) {
  config::ModelOptions o;
  o.vocabulary_size = 50;
  o.n_layers = 3;
  o.d_model = 16;
  o.context_length = 8;
  o.mlp.d_hidden = 24;
  o.attention.n_heads = 2;
  o.attention.d_head = 8;
  change(o);
  const std::unique_ptr<models::Model> model = models::make_model(o, 1);
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

TEST(LayerWalkTest, ReadsLanguageModels) {
  expect_same([](config::ModelOptions&) {});
  expect_same([](config::ModelOptions& o) {
    o.attention.window = 4;
    o.attention.window_pattern = "1:1";
    o.norm_position = config::NormPosition::post;
  });
}

TEST(LayerWalkTest, CarriesMemory) {
  expect_same([](config::ModelOptions& o) {
    o.attention.position = "relative";
    o.memory_length = 8;
  });
}

TEST(LayerWalkTest, ReadsMaskedLanguageModels) {
  expect_same([](config::ModelOptions& o) { o.kind = config::ModelKind::masked_language_model; });
}

}  // namespace
}  // namespace headroom::convert
