#include "training/train/step/state.h"

#include "folder_test.h"
#include "headroom/models/language_model.h"
#include "tiny/files.h"
#include "training/train/loop/start.h"

namespace headroom::train::state_test {

struct Saved {
  Saved() : config(tiny::config()), model(config.model, 1), state(initial_state(model.parameters())) {
    state.step = 41;
    state.position = {.epoch = 2, .step = 5};
    state.tokens = 1312;
    state.seconds = 1.0 / 3.0;
    state.cpu_seconds = 0.6;
    state.steady_tokens = 1216;
    state.steady_seconds = 0.1;
    state.interval = {.steps = 3, .tokens = 96, .seconds = 0.07, .loss = 17.1, .regulariser = -1e-300};
    for (std::size_t i = 0; i < state.moments.m.size(); ++i) {
      state.moments.m[i].fill_(static_cast<double>(i) + 0.1);
      state.moments.v[i].fill_(static_cast<double>(i) + 0.2);
    }
    state.memory.layers = {at::full({4, 8, 16}, 0.3), at::full({4, 8, 16}, 0.4)};
  }
  store::Checkpoint checkpoint() const {
    return to_checkpoint(state, {model, config, tiny::bytes_tokenizer(), "these tokens"});
  }
  config::Config config;
  models::LanguageModel model;
  TrainState state;
};

TEST(TrainState, SurvivesAFile) {
  const tiny::Folder folder;
  const Saved saved;
  const auto path = store::write_checkpoint(saved.checkpoint(), folder.path(), 1);
  const TrainState read = from_checkpoint(store::read_checkpoint(path), saved.model, path.string());
  EXPECT_EQ(read.step, 41);
  EXPECT_EQ(read.position, saved.state.position);
  EXPECT_EQ(read.tokens, saved.state.tokens);
  EXPECT_EQ(read.seconds, saved.state.seconds);
  EXPECT_EQ(read.cpu_seconds, saved.state.cpu_seconds);
  EXPECT_EQ(read.steady_tokens, saved.state.steady_tokens);
  EXPECT_EQ(read.steady_seconds, saved.state.steady_seconds);
  EXPECT_EQ(read.interval.steps, 3);
  EXPECT_EQ(read.interval.tokens, 96);
  EXPECT_EQ(read.interval.seconds, 0.07);
  EXPECT_EQ(read.interval.loss, 17.1);
  EXPECT_EQ(read.interval.regulariser, -1e-300);
  for (std::size_t i = 0; i < read.moments.m.size(); ++i) {
    EXPECT_TRUE(at::equal(read.moments.m[i], saved.state.moments.m[i]));
    EXPECT_TRUE(at::equal(read.moments.v[i], saved.state.moments.v[i]));
  }
  ASSERT_EQ(read.memory.layers.size(), 2U);
  EXPECT_TRUE(at::equal(read.memory.layers[1], saved.state.memory.layers[1]));
}

TEST(TrainState, OfMuonHasNoSquaresForMatrices) {
  config::Config config = tiny::config();
  config.train.optimizer = config::Optimizer::muon;
  const models::LanguageModel model(config.model, 1);
  TrainState state = initial_state(model.parameters(), config.train.optimizer);
  state.moments.m[0].fill_(0.5);
  store::Checkpoint checkpoint = to_checkpoint(state, {model, config, tiny::bytes_tokenizer(), "these tokens"});
  EXPECT_TRUE(checkpoint.tensors.contains("optimizer.m.layer0.attention.w_v"));
  EXPECT_FALSE(checkpoint.tensors.contains("optimizer.v.layer0.attention.w_v"));
  EXPECT_TRUE(checkpoint.tensors.contains("optimizer.v.embed"));
  const TrainState read = from_checkpoint(checkpoint, model, "file");
  for (std::size_t i = 0; i < read.moments.m.size(); ++i) {
    EXPECT_TRUE(at::equal(read.moments.m[i], state.moments.m[i]));
    EXPECT_EQ(read.moments.v[i].defined(), state.moments.v[i].defined());
  }
  checkpoint.tensors.erase("optimizer.v.embed");
  EXPECT_HAS(user_error_of([&] { from_checkpoint(checkpoint, model, "file"); }), "optimizer.v.embed");
}

TEST(TrainState, RefusesACheckpointThatLacksIt) {
  const Saved saved;
  const auto why = [&](const std::function<void(store::Checkpoint&)>& change) {
    store::Checkpoint checkpoint = saved.checkpoint();
    change(checkpoint);
    return user_error_of([&] { from_checkpoint(checkpoint, saved.model, "file"); });
  };
  using Change = std::function<void(store::Checkpoint&)>;
  const std::pair<const char*, Change> cases[] = {
      {"train_state", [](auto& c) { c.metadata.clear(); }},
      {"epoch", [](auto& c) { c.metadata["train_state"] = "[1]"; }},
      {"epoch", [](auto& c) { c.metadata["train_state"] = "{\"epoch\": -1}"; }},
      {"epoch", [](auto& c) { c.metadata["train_state"] = "{\"epoch\": \"x\"}"; }},
      {"optimizer.v.head.b", [](auto& c) { c.tensors.erase("optimizer.v.head.b"); }},
      {"[7]", [](auto& c) { c.tensors["optimizer.m.head.b"] = at::zeros({7}); }},
      {"memory.layer1", [](auto& c) { c.tensors.erase("memory.layer1"); }},
      {"memory.layer1", [](auto& c) {
         c.tensors["memory.layer1"] = at::zeros({4, 9, 16});
       }}};
  for (const auto& [part, change] : cases) {
    EXPECT_HAS(why(change), part);
  }
}

TEST(Resume, RequiresTheSameData) {
  store::Checkpoint checkpoint = Saved().checkpoint();
  EXPECT_NO_THROW(check_data(checkpoint, "these tokens", "run"));
  EXPECT_HAS(user_error_of([&] { check_data(checkpoint, "those tokens", "run"); }), "other data");
}

TEST(Resume, KnowsWhichKeysMayChange) {
  const Saved saved;
  const ResumePoint resumed{"run/step_41.safetensors", saved.checkpoint()};
  const auto check = [&](const std::string& assignment) {
    config::Config config = saved.config;
    config.train.steps = 100;
    config::set_key(config, assignment);
    check_resumable(resumed, config);
  };
  const auto why = [&](const std::string& assignment) { return user_error_of([&] { check(assignment); }); };
  for (const char* fine : {"train.steps=41", "train.learning_rate=0.5", "train.threads=2", "train.clip_norm=1",
                           "train.precision=\"bf16\"", "train.checkpoint_every=7"}) {
    EXPECT_NO_THROW(check(fine)) << fine;
  }
  for (const std::string key : {"model.d_model", "model.dropout", "model.attention.d_head", "train.batch_size",
                                "train.seed", "train.optimizer"}) {
    const std::string refused = why(key + "=" +
                                    (key == "model.dropout"     ? "0.5"
                                     : key == "train.optimizer" ? "\"muon\""
                                                                : "12"));
    EXPECT_HAS(refused, key);
  }
  EXPECT_HAS(why("train.steps=40"), "train.steps");
}

TEST(ParametersHash, DependsOnNamesAndBytes) {
  nn::Parameters a, b, c, d;
  a.add("x", at::ones({2}));
  b.add("x", at::ones({2}));
  c.add("y", at::ones({2}));
  d.add("x", at::full({2}, 1.0000001));
  EXPECT_EQ(parameters_sha256(a).size(), 64U);
  EXPECT_EQ(parameters_sha256(a), parameters_sha256(b));
  EXPECT_NE(parameters_sha256(a), parameters_sha256(c));
  EXPECT_NE(parameters_sha256(a), parameters_sha256(d));
}

}  // namespace headroom::train::state_test
