#include "training/train/loop/train.h"

#include "folder_test.h"
#include "headroom/store/open_model.h"
#include "tiny/files.h"
#include "training/tasks/language/language_modelling.h"

namespace headroom::train::train_test {

namespace fs = std::filesystem;

// Test fixture: a folder with a small text and the runs on it.
class Train : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text_file(folder_ / "train.txt", tiny::text(1500));  // 46 steps per epoch
    write_text_file(folder_ / "validation.txt", tiny::text(400, 2));
    config_ = tiny::config();
    config_.data.train = {(folder_ / "train.txt").string()};
    config_.data.validation = {(folder_ / "validation.txt").string()};
  }
  TrainRequest request(const std::string& name, bool resume = false) const {
    return {.config = config_, .out = folder_ / name, .resume = resume, .cache = folder_ / "cache"};
  }
  std::vector<Json> metrics(const std::string& name) const {
    std::vector<Json> lines;
    std::ifstream file(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      lines.push_back(parse_json(line, "metrics"));
    }
    return lines;
  }
  // Creates a run folder that holds only this checkpoint of the run "whole". Returns its name.
  std::string resumable(std::int64_t step) const {
    const std::string name = fmt::format("from{}", step);
    fs::remove_all(folder_ / name);
    fs::create_directories(folder_ / name / "checkpoints");
    fs::copy(folder_ / "whole" / "checkpoints" / fmt::format("step_{}.safetensors", step),
             folder_ / name / "checkpoints");
    return name;
  }
  config::Config written(const std::string& name) const {
    const std::string file = (folder_ / name / "config.toml").string();
    return config::parse_config(read_text_file(file), file);
  }
  std::string refusal(const TrainRequest& request) const {
    try {
      train(request);
    } catch (const Error& error) {
      return error.what();
    }
    return "no Error";
  }
  tiny::Folder folder_;
  config::Config config_;
};

TEST_F(Train, LearnsAndWritesItsFolder) {
  tiny::set(config_, "train.steps=150 train.log_every=10 train.evaluate_every=50 train.checkpoint_every=60");
  const TrainResult result = train(request("run"));
  EXPECT_EQ(result.steps, 150);
  EXPECT_FALSE(result.interrupted);
  EXPECT_LT(result.train_loss, 3.0) << "5.5 is chance";
  EXPECT_LT(result.figures().at("loss"), 3.0);
  EXPECT_GT(result.tokens_per_second, 0.0);
  EXPECT_GT(result.seconds, 0.0);
  EXPECT_GT(result.peak_memory_bytes, 0);

  const std::vector<Json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 15U + 3U);
  for (const char* key : {"step", "loss", "tokens", "tokens_per_second", "learning_rate", "gradient_norm", "seconds"}) {
    EXPECT_TRUE(lines[0].contains(key)) << key;
  }
  EXPECT_EQ(lines[0]["step"], 10);
  EXPECT_EQ(lines[0]["tokens"], 10 * 4 * 8);
  EXPECT_GT(lines[0]["loss"].get<double>(), 2.0 * result.train_loss * 0.7);
  EXPECT_EQ(lines[5]["step"], 50);
  EXPECT_TRUE(lines[5].contains("validation_loss")) << lines[5];
  EXPECT_GT(lines[5]["experts"].size(), 0U);
  ASSERT_EQ(result.validation.size(), 3U);
  EXPECT_EQ(result.validation[1].step, 100);
  EXPECT_EQ(result.validation.back().figures.size(), 4U) << "loss and its error, perplexity, bits per byte";

  EXPECT_EQ(fs::path(store::find_checkpoint(folder_ / "run")).filename(), "step_150.safetensors");
  const store::Checkpoint checkpoint = store::read_checkpoint(store::find_checkpoint(folder_ / "run"));
  EXPECT_EQ(config::to_toml(checkpoint.config), read_text_file(folder_ / "run" / "config.toml"));
  const auto model = store::build_model(checkpoint);
  EXPECT_EQ(model->parameters().count(), result.parameters);
  const auto validation = tiny::token_file(folder_, "check", tiny::text(400, 2));
  const tasks::Evaluation again = tasks::evaluate_text(*model, validation, {.batch_size = 4});
  EXPECT_NEAR(tasks::mean(again.sums, tasks::kCrossEntropy), result.figures().at("loss"), 1e-9);
}

// Each kind of run has other state in its checkpoints and goes beyond the end of its first epoch.
TEST_F(Train, EveryKindOfRunLearnsAndResumes) {
  const std::pair<std::string, std::vector<std::string>> kinds[] = {
      {"hidden tokens", {"model.kind=masked_language_model", "model.vocabulary_size=258", "model.context_length=24"}},
      {"chunks", {"data.batching=chunks", "train.accumulate=2", "train.steps=46"}},
      {"a mixture",
       {fmt::format(R"(data.train=["{0}/train.txt", "{0}/validation.txt"])", folder_.path().string()),
        "data.mixture=[3, 1]"}},
      {"shared keys, layers without attention or MLP",
       {"model.n_layers=3", "model.attention.projection=dense", "model.attention.position=rope",
        R"(model.layers=[{},{attention={share_kv=1},mlp={kind="none"}},{attention={n_heads=0}}])"}},
      {"muon", {"train.optimizer=muon", "train.muon_learning_rate=2e-2", "train.weight_decay=0.01"}},
      {"muon in bf16, composed heads",
       {"train.optimizer=muon", "train.muon_learning_rate=2e-2", "train.precision=bf16",
        "model.attention.composition=dynamic"}},
      {"priors",
       {"model.attention.score=gaussian_mixture", "model.attention.keys=shifted",
        "model.attention.prior_update=soft_e"}},
      {"noise in bf16",
       {"model.attention.projection=routed_heads", "model.attention.n_experts=4", "model.attention.noisy_routing=true",
        "model.mlp.kind=experts", "model.mlp.n_experts=4", "model.mlp.top_k=2", "train.precision=bf16",
        "train.accumulate=2"}},
      {"classes",
       {"data.train=[]", "data.validation=[]", "data.generator=listops", "data.generated_train=90",
        "data.generated_validation=40", "model.kind=classifier", "model.vocabulary_size=16",
        "tokenizer.vocabulary_size=16", "model.context_length=50", "model.n_classes=10",
        "model.attention.position=learned", "train.accumulate=2"}}};
  for (const auto& [name, assignments] : kinds) {
    SCOPED_TRACE(name);
    SetUp();
    tiny::set(config_, "model.memory_length=0 train.steps=60 train.checkpoint_every=20 train.keep_checkpoints=9");
    for (const std::string& assignment : assignments) {
      config::set_key(config_, assignment);
    }
    fs::remove_all(folder_ / "whole");
    const TrainResult whole = train(request("whole"));
    EXPECT_LT(whole.figures().at("loss"), 4.5) << "5.5 is chance; of classes 2.3";
    for (const std::int64_t step : {20, 40}) {
      const std::string rest = resumable(step);
      const TrainResult resumed = train(request(rest, true));
      EXPECT_EQ(resumed.parameters_sha256, whole.parameters_sha256) << step;
      EXPECT_EQ(resumed.figures(), whole.figures()) << step;
    }
  }
  config_.data.generator_seed = 2;
  config_.train.steps = 70;
  EXPECT_HAS(refusal(request("whole", true)), "other data");
}

TEST_F(Train, EverySourceOfRandomnessHasTheSeed) {
  const std::string first = train(request("a")).parameters_sha256;
  EXPECT_EQ(train(request("b")).parameters_sha256, first);
  config_.train.seed = 2;
  EXPECT_NE(train(request("c")).parameters_sha256, first);
}

TEST_F(Train, ResumesWithMoreSteps) {
  const std::string before = train(request("run")).parameters_sha256;
  config_.train.steps = 12;
  config_.train.schedule = config::Schedule::constant;
  EXPECT_EQ(train(request("run", true)).steps, 12);
  std::set<std::int64_t> steps;
  for (const Json& line : metrics("run")) {
    if (line.contains("loss")) {
      EXPECT_TRUE(steps.insert(line["step"].get<std::int64_t>()).second) << line;
    }
  }
  EXPECT_EQ(steps.size(), 12U);
  EXPECT_HAS(read_text_file(folder_ / "run" / "config.toml"), "steps = 12");
  const TrainedRun read = read_run(folder_ / "run", written("run"), tasks::task_for(config_, "test"));
  EXPECT_EQ(read.result.steps, 12);
  EXPECT_NE(read.result.parameters_sha256, before);
  EXPECT_FALSE(read.origin.data.validation.empty());
}

TEST_F(Train, RecordsADivergence) {
  tiny::set(config_, "train.learning_rate=1e30 train.clip_norm=0.0 train.log_every=1");
  EXPECT_THROW(train(request("run")), DivergedError);
  const TrainedRun read = read_finished_run(folder_ / "run", config_, tasks::task_for(config_, "test"));
  EXPECT_HAS(read.diverged, "so training stopped");
  EXPECT_GT(read.result.steps, 0);
  EXPECT_GT(read.result.parameters, 0);
  EXPECT_TRUE(read.result.validation.empty());
}

TEST_F(Train, LeavesNoFolderIfNothingStarted) {
  config_.data.train = {(folder_ / "nowhere.txt").string()};
  EXPECT_HAS(refusal(request("new")), "nowhere.txt");
  EXPECT_FALSE(fs::exists(folder_ / "new"));
  fs::create_directory(folder_ / "mine");
  EXPECT_HAS(refusal(request("mine")), "nowhere.txt");
  EXPECT_TRUE(fs::exists(folder_ / "mine")) << "somebody else's";
}

TEST_F(Train, RefusesAnotherRunsFolder) {
  train(request("run"));
  const std::string before = read_text_file(folder_ / "run" / "metrics.jsonl");
  EXPECT_HAS(refusal(request("run")), "already holds a run");
  config_.model.attention.of<config::RoutingOptions>().n_experts = 4;
  EXPECT_HAS(refusal(request("run", true)), "model.attention.n_experts");
  config_ = tiny::config();
  config_.data.train = {(folder_ / "validation.txt").string()};
  config_.data.validation = {(folder_ / "validation.txt").string()};
  config_.train.steps = 20;
  EXPECT_HAS(refusal(request("run", true)), "other data");
  {
    const FolderLock lock(folder_ / "run");
    EXPECT_HAS(refusal(request("run", true)), "run");
  }
  EXPECT_EQ(read_text_file(folder_ / "run" / "metrics.jsonl"), before) << "nothing was touched";
}

TEST_F(Train, RemovesTemporaryFilesOfAKilledRun) {
  config_.train.checkpoint_every = 4;
  train(request("run"));
  const fs::path torn = folder_ / "run" / "checkpoints" / "step_9.safetensors.tmp-123";
  write_text_file(torn, "half");
  write_text_file(folder_ / "run" / "checkpoints" / "step_8.safetensors", "torn");
  EXPECT_EQ(train(request("run", true)).steps, 8) << "continues from step 4";
  EXPECT_FALSE(fs::exists(torn));
  EXPECT_NO_THROW(store::read_checkpoint(folder_ / "run" / "checkpoints" / "step_8.safetensors"));
}

// Makes a step take long compared with writing a checkpoint.
void make_slow(config::Config& config) {
  tiny::set(config, "model.context_length=128 model.memory_length=0 train.batch_size=8");
}

TEST_F(Train, ChoosesItsIntervals) {
  write_text_file(folder_ / "train.txt", tiny::text(9000));
  write_text_file(folder_ / "validation.txt", tiny::text(40, 2));
  make_slow(config_);
  tiny::set(config_, "train.steps=200 train.keep_checkpoints=1000 train.log_every=200");
  const TrainResult result = train(request("run"));
  const config::TrainOptions decided = written("run").train;
  EXPECT_EQ(decided.evaluate_every, 10) << "a twentieth: this validation is short";
  EXPECT_EQ(result.validation.size(), 20U);
  EXPECT_GE(decided.checkpoint_every, 0) << "decided, from how long a step took";
  EXPECT_TRUE(decided.checkpoint_every == 0 || decided.checkpoint_every >= 20);
  const store::Checkpoint last = store::read_checkpoint(store::find_checkpoint(folder_ / "run"));
  EXPECT_EQ(last.config.train.checkpoint_every, decided.checkpoint_every);
  EXPECT_EQ(last.config.train.evaluate_every, 10);

  // The parameters do not depend on the intervals, and 0 still means only at the end.
  config_.train.evaluate_every = config_.train.checkpoint_every = 0;
  const TrainResult bare = train(request("bare"));
  EXPECT_EQ(bare.parameters_sha256, result.parameters_sha256);
  EXPECT_EQ(bare.validation.size(), 1U);
  EXPECT_EQ(bare.figures(), result.figures());
}

TEST_F(Train, ResumesWithItsStoredIntervals) {
  tiny::set(config_, "train.steps=8 train.checkpoint_every=3 train.evaluate_every=2");
  train(request("run"));
  fs::remove(folder_ / "run" / "checkpoints" / "step_8.safetensors");
  config_.train.checkpoint_every = config_.train.evaluate_every = config::kAutomatic;
  EXPECT_EQ(train(request("run", /*resume=*/true)).validation.size(), 4U);
  EXPECT_EQ(written("run").train.checkpoint_every, 3);
  EXPECT_EQ(written("run").train.evaluate_every, 2);
  // With more steps the interval is computed again.
  config_.train.steps = 61;
  const TrainResult result = train(request("run", /*resume=*/true));
  EXPECT_GT(result.validation.back().step - result.validation[result.validation.size() - 2].step, 2);
  EXPECT_NE(written("run").train.evaluate_every, 2);
  const std::int64_t checkpoint_every = written("run").train.checkpoint_every;  // 0 unless steps are slow
  EXPECT_TRUE(checkpoint_every == 0 || checkpoint_every >= 7) << checkpoint_every << ": at most ten for 61 steps";
}

// The loss is about 1000, so its perplexity is not finite.
TEST_F(Train, AFinalFigureThatIsNotFiniteIsAFailedRun) {
  tiny::set(config_,
            "train.learning_rate=100.0 train.warmup_steps=0 train.schedule=constant train.steps=4 "
            "train.clip_norm=0.0");
  for (const bool resumed : {false, true}) {
    const std::string why = refusal(request("run", resumed));
    EXPECT_HAS(why, "validation perplexity is inf after the last step, 4");
    EXPECT_HAS(why, "train.clip_norm = 0.25");
    EXPECT_EQ(metrics("run").back()["step"], 4) << "it is in the record all the same";
  }
}

TEST_F(Train, StopsWhenTheLossIsNotFinite) {
  tiny::set(config_, "train.learning_rate=1e30 train.clip_norm=0.0 train.checkpoint_every=1");
  config_.train.evaluate_every = 0;  // a validation after step 1 would find it earlier
  const std::string why = refusal(request("run"));
  EXPECT_HAS(why, "step 2");
  EXPECT_HAS(why, "step_1.safetensors");
  EXPECT_HAS(why, "train.learning_rate");
  EXPECT_EQ(why.find("smaller train.clip_norm"), std::string::npos) << why;
}

TEST_F(Train, NeverSavesParametersThatAreNotFinite) {
  config_.train.learning_rate = 1e300;  // the first step overflows fp32
  config_.train.checkpoint_every = 1;
  const std::string why = refusal(request("run"));
  EXPECT_HAS(why, "not finite");
  EXPECT_HAS(why, "train.learning_rate");
  EXPECT_FALSE(store::has_checkpoints(folder_ / "run"));
}

TEST_F(Train, ResumesOnAnotherDevice) {
  config_.train.steps = 2;
  train(request("run"));
  config_.train.steps = 4;
  config_.train.device = "cpu";  // was "auto"
  EXPECT_EQ(train(request("run", /*resume=*/true)).steps, 4);
  config_.train.device = "cuda:999";
  config_.train.steps = 6;
  EXPECT_HAS(refusal(request("run", /*resume=*/true)), "device cuda:999");
}

// If the vocabulary size is not given, the size of the training text's vocabulary is used.
TEST_F(Train, AnUnsetVocabularyIsTheTokenizers) {
  config_.tokenizer = {.kind = config::TokenizerKind::words, .vocabulary_size = 0};
  config_.model.vocabulary_size = 8000;
  EXPECT_HAS(refusal(request("given")), "vocabulary_size: must be ");
  config_.vocabulary_follows_tokenizer = true;
  config_.train.steps = 2;
  train(request("run"));
  EXPECT_LT(written("run").model.vocabulary_size, 50);
  EXPECT_FALSE(written("run").vocabulary_follows_tokenizer);
  config_.train.steps = 4;
  EXPECT_EQ(train(request("run", /*resume=*/true)).steps, 4);
}

TEST_F(Train, NamesErrorsInTheData) {
  config_.model.vocabulary_size = 300;
  EXPECT_HAS(refusal(request("a")), "vocabulary_size");
  config_ = tiny::config();
  config_.data.validation = {(folder_ / "validation.txt").string()};
  write_text_file(folder_ / "short.txt", "too short");
  config_.data.train = {(folder_ / "short.txt").string()};
  EXPECT_HAS(refusal(request("b")), "context_length");
  for (const char* name : {"a", "b"}) {
    EXPECT_FALSE(fs::exists(folder_ / name / "config.toml")) << "a refused run leaves the folder free";
  }
}

}  // namespace headroom::train::train_test
