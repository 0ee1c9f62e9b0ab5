// Tests runs with train.start_from.
#include "training/train/loop/start.h"

#include "folder_test.h"
#include "tiny/files.h"

namespace headroom::train::start_test {

namespace fs = std::filesystem;

class StartTest : public ::testing::Test {
 protected:
  StartTest() {
    write_text_file(folder_ / "first.txt", tiny::text(1500));
    write_text_file(folder_ / "second.txt", tiny::text(1800, 3));
    first_ = of(tiny::config(), "first.txt");
    first_.tokenizer = {.kind = config::TokenizerKind::words, .vocabulary_size = 0};
    first_.vocabulary_follows_tokenizer = true;
    before_ = train(request(first_, "before"));
    next_ = of({}, "second.txt");
    next_.train = first_.train;
    next_.train.start_from = (folder_ / "before").string();
  }

  config::Config of(config::Config config, const std::string& text) const {
    config.data.train = config.data.validation = {(folder_ / text).string()};
    return config;
  }
  TrainRequest request(const config::Config& config, const std::string& name, bool resume = false) const {
    return {.config = config, .out = folder_ / name, .resume = resume, .cache = folder_ / "cache"};
  }
  store::Checkpoint checkpoint(const std::string& run) const {
    return store::read_checkpoint(store::find_checkpoint(folder_ / run));
  }
  // Returns the message that refuses a run with this key set in a file.
  std::string refusal(const std::string& assignment) const {
    config::Config config = next_;
    config.given[config::set_key(config, assignment)] = "next.toml:7";
    return user_error_of([&] { train(request(config, "refused")); });
  }

  tiny::Folder folder_;
  config::Config first_, next_;
  TrainResult before_;
};

TEST_F(StartTest, TakesParametersModelAndTokenizer) {
  next_.train.steps = 3;
  next_.train.learning_rate = 1e-30;  // too small to change a float32 parameter
  const TrainResult after = train(request(next_, "after"));
  EXPECT_EQ(after.parameters_sha256, before_.parameters_sha256);
  EXPECT_EQ(after.steps, 3);
  const store::Checkpoint was = checkpoint("before"), is = checkpoint("after");
  EXPECT_EQ(is.tokenizer->name(), was.tokenizer->name());
  EXPECT_EQ(is.config.model.d_model, 16);
  EXPECT_EQ(is.config.model.attention.projection.name(), "experts");
  EXPECT_EQ(is.config.model.vocabulary_size, was.config.model.vocabulary_size);
  EXPECT_EQ(is.config.tokenizer.kind, config::TokenizerKind::words);
  EXPECT_EQ(is.config.train.start_from, (folder_ / "before").string());
  EXPECT_EQ(is.config.train.start_sha256, before_.parameters_sha256);
  // The recorded config repeats the run, but is refused if the parameters in the file have changed.
  const std::string toml = config::to_toml(is.config);
  const config::Config recorded = config::parse_config(toml, "config.toml");
  EXPECT_EQ(train(request(recorded, "again")).parameters_sha256, after.parameters_sha256);
  first_.train.steps = 9;
  train(request(first_, "before", true));
  EXPECT_HAS(user_error_of([&] { train(request(recorded, "other")); }), before_.parameters_sha256);
}

TEST_F(StartTest, OptimizerAndPositionAreFresh) {
  next_.train.steps = 1;
  train(request(next_, "after"));
  const store::Checkpoint was = checkpoint("before"), is = checkpoint("after");
  EXPECT_EQ(is.step, 1);
  // After the first step the moments are 0.1 of its gradient and 0.001 of its square: they start from zero.
  double most = 0.0;
  for (const auto& [name, m] : is.tensors) {
    if (name.starts_with("optimizer.m.")) {
      const at::Tensor gradient = m / 0.1, v = is.tensors.at("optimizer.v." + name.substr(12));
      most = std::max(most, ((gradient * gradient * 0.001) - v).abs().max().item<double>());
    }
  }
  EXPECT_LT(most, 1e-7);
}

TEST_F(StartTest, ResumedWithoutTheFileItIsTheSameRun) {
  tiny::set(next_, "train.steps=12 train.checkpoint_every=5 train.keep_checkpoints=9");
  const TrainResult whole = train(request(next_, "whole"));
  fs::remove_all(folder_ / "before");
  fs::create_directories(folder_ / "rest" / "checkpoints");
  fs::copy(folder_ / "whole" / "checkpoints" / "step_5.safetensors", folder_ / "rest" / "checkpoints");
  EXPECT_EQ(train(request(next_, "rest", true)).parameters_sha256, whole.parameters_sha256);
  EXPECT_EQ(config::to_toml(checkpoint("rest").config), config::to_toml(checkpoint("whole").config));
  // A resumed run cannot change train.start_from.
  next_.train.start_from = (folder_ / "elsewhere").string();
  EXPECT_THROW(train(request(next_, "rest", true)), UserError);
}

TEST_F(StartTest, TrainingSettingsMayChange) {
  config::Config config = next_;
  for (const char* assignment : {"model.dropout=0.0", "model.attention.expert_dropout=0.0", "model.context_length=12",
                                 "model.memory_length=12", "train.optimizer=muon"}) {
    config.given[config::set_key(config, assignment)] = "next.toml:7";
  }
  train(request(config, "after"));
  const config::Config is = checkpoint("after").config;
  EXPECT_EQ(is.model.dropout, 0.0);
  EXPECT_EQ(is.model.context_length, 12);
  EXPECT_EQ(is.model.memory_length, 12);
  EXPECT_EQ(is.model.attention.of<config::RoutingOptions>().expert_dropout, 0.0);
  EXPECT_EQ(is.model.n_layers, 2);
}

TEST_F(StartTest, AnotherModelOrTokenizerIsRefusedByKeyAndBothValues) {
  const std::string file = (folder_ / "before" / "checkpoints" / "step_8.safetensors").string();
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"model.d_model=32", {"next.toml:7: model.d_model must be 16, as in " + file + " (train.start_from), got 32"}},
      {"model.attention.projection=dense", {"model.attention.projection must be experts", "got dense"}},
      {"model.mlp.activation=relu", {"model.mlp.activation must be gelu", "got relu"}},
      {"model.attention.experts=[\"v\"]", {"model.attention.experts must be [\"v\", \"o\"]", "got [\"v\"]"}},
      {"model.kind=masked_language_model", {"model.kind must be language_model", "got masked_language_model"}},
      {"tokenizer.kind=bytes", {"tokenizer.kind must be \"words\"", "got \"bytes\""}},
      {"tokenizer.vocabulary_size=500", {"tokenizer.vocabulary_size must be ", "got 500"}},
      {"train.start_sha256=0123", {"train.start_sha256 is 0123", before_.parameters_sha256}},
      {"train.start_from=" + (folder_ / "nowhere").string(), {"nowhere: "}}};
  for (const auto& [assignment, says] : cases) {
    const std::string message = refusal(assignment);
    for (const std::string& part : says) {
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks " << part;
    }
    EXPECT_FALSE(fs::exists(folder_ / "refused" / "config.toml")) << assignment;
  }
  // A tokenizer file must have the checkpoint's tokenizer.
  tokenizers::save_tokenizer(*tiny::bytes_tokenizer(), folder_ / "bytes.tokenizer");
  const std::string message = refusal("tokenizer.model=" + (folder_ / "bytes.tokenizer").string());
  EXPECT_HAS(message, "bytes-256-");
  EXPECT_HAS(message, checkpoint("before").tokenizer->name());
}

TEST_F(StartTest, TokensOfAnotherTokenizerAreRefusedByName) {
  config::Config config = next_;
  tiny::token_file(folder_, "bytes", tiny::text(500));
  config.data.train = config.data.validation = {(folder_ / "bytes.tokens").string()};
  const std::string message = user_error_of([&] { train(request(config, "refused")); });
  EXPECT_HAS(message, "train.start_from");
  EXPECT_EQ(message.find("tokenizer.model"), std::string::npos) << message;
  EXPECT_HAS(message, "bytes-256-");
  EXPECT_HAS(message, checkpoint("before").tokenizer->name());
}

// Tables with a row for each position must have the same length.
TEST_F(StartTest, LearnedPositionsKeepTheirLength) {
  config::Config config = of(tiny::config(), "first.txt");
  tiny::set(config, "model.memory_length=0 model.attention.position=learned train.steps=1");
  train(request(config, "learned"));
  next_.train.start_from = (folder_ / "learned").string();
  const std::string message = refusal("model.context_length=12");
  EXPECT_HAS(message, "next.toml:7: model.context_length must be 8");
  EXPECT_HAS(message, "got 12");
}

TEST_F(StartTest, WithoutACheckpointAConfigStaysAsItIs) {
  EXPECT_EQ(config::to_toml(with_initial_parameters(first_)), config::to_toml(first_));
  const config::Config begun = with_initial_parameters(next_);
  EXPECT_EQ(begun.model.d_model, 16);
  EXPECT_EQ(config::to_toml(with_initial_parameters(begun)), config::to_toml(begun));
}

}  // namespace headroom::train::start_test
