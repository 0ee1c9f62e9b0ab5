// Counts the host synchronisations and kernel launches of a training step.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "emulated_cuda.h"
#include "headroom/config/config.h"
#include "headroom/models/compute.h"
#include "one_thread.h"
#include "training/train/step/step.h"

namespace headroom::emulated_cuda::waits_test {

// Returns a zoo recipe with fewer tokens.
config::Config of_the_zoo(const std::string& name) {
  return config::load_config("zoo/" + name, {"model.context_length=16"});
}

// Returns the counts of one training step, including the transfer of its batch.
Counts step_counts(const config::Config& config) {
  const at::Device device = models::resolve("cuda");
  const auto model = models::make_model(config.model, 1, at::TensorOptions(at::kFloat).device(device));
  const models::Batch batch = models::make_model(config.model, 1)->example(2, 1);
  train::TrainState state = train::initial_state(model->parameters(), config.train.optimizer);
  const nn::Context context = models::make_context(config.train, device);
  for (int step = 0; step < 2; ++step) {  // the first step fills caches
    reset_counts();
    EXPECT_TRUE(train::train_step(*model, batch.to(device), state, config.train, context).finite());
  }
  return counts();
}

std::string described(const std::map<std::string, std::int64_t>& counts) {
  std::vector<std::pair<std::int64_t, std::string>> order;
  for (const auto& [name, count] : counts) {
    order.emplace_back(-count, name);
  }
  std::sort(order.begin(), order.end());
  std::string text;
  for (const auto& [count, name] : order) {
    text += fmt::format("{} {}, ", -count, name);
  }
  return text;
}

// The number of operators of a step may only decrease.
struct Expected {
  const char* recipe;
  std::int64_t most_operators;
};

class Waits : public ::testing::TestWithParam<Expected> {};

TEST_P(Waits, AStepWaitsAFewTimes) {
  const Counts counts = step_counts(of_the_zoo(GetParam().recipe));
  fmt::print("{}: {} waits, {} operators per step\n", GetParam().recipe, counts.all_waits(), counts.all_operators());
  EXPECT_LE(counts.all_waits(), 5) << described(counts.waits);
  EXPECT_LE(counts.all_operators(), GetParam().most_operators) << described(counts.operators);
}

TEST(WaitsOfTasks, AreFewWhateverIsTrained) {
  const std::vector<std::string> all[] = {{"small/listops_mgk_h2"},
                                          {"small/mnist_dcvit"},
                                          {"small/masked_moa", "train.optimizer=muon"},
                                          {"small/translation_moa", "model.context_length=16"},
                                          {"zoo/switchall", "model.context_length=16", "train.accumulate=2"},
                                          {"zoo/smgk", "model.context_length=16", "train.precision=bf16"}};
  for (const std::vector<std::string>& recipe : all) {
    const config::Config config = config::load_config(recipe[0], {recipe.begin() + 1, recipe.end()});
    const Counts counts = step_counts(config);
    fmt::print("{}: {} waits, {} operators per step\n", fmt::join(recipe, " "), counts.all_waits(),
               counts.all_operators());
    EXPECT_LE(counts.all_waits(), 5) << recipe[0] << ": " << described(counts.waits);
  }
}

INSTANTIATE_TEST_SUITE_P(Device, Waits,
                         ::testing::Values(Expected{"dense", 650}, Expected{"switchhead", 1090},
                                           Expected{"dcmha", 1910}, Expected{"moa", 1205}, Expected{"mgk", 1194}),
                         [](const auto& test) { return std::string(test.param.recipe); });

}  // namespace headroom::emulated_cuda::waits_test
