#include "training/train/loop/run.h"

#include "folder_test.h"
#include "headroom/models/compute.h"
#include "tiny/files.h"

namespace headroom::train::run_test {

namespace fs = std::filesystem;

class RunTest : public ::testing::Test {
 protected:
  RunTest() {
    write_text_file(folder_ / "train.txt", tiny::text(1500));
    write_text_file(folder_ / "validation.txt", tiny::text(400, 2));
    config_.data.train = {(folder_ / "train.txt").string()};
    config_.data.validation = {(folder_ / "validation.txt").string()};
    tiny::set(config_,
              "train.steps=20 train.log_every=3 train.evaluate_every=6 train.checkpoint_every=7 "
              "train.sample_every=5 train.keep_best=true");
  }

  train::Run run(const ResumePoint* resumed = nullptr, History history = {}) {
    return {{.config = config_,
             .data = tasks::task_for(config_, "test").open(config_, folder_ / "cache"),
             .history = std::move(history),
             .resumed = resumed},
            group_};
  }
  TrainResult write(train::Run& run) const {
    fs::create_directories(folder_ / "run");
    Writer writer({.folder = folder_ / "run",
                   .title = "test",
                   .step = run.state().step,
                   .steps = config_.train.steps,
                   .keep_checkpoints = 9,
                   .samples = true},
                  run.task().figures());
    return run.finish(writer);
  }

  tiny::Folder folder_;
  config::Config config_ = tiny::config();
  parallel::GlooGroup group_;
};

// Compares everything except times.
void expect_same(const History& a, const History& b) {
  EXPECT_EQ(a.best_step, b.best_step);
  EXPECT_EQ(a.saved_step, b.saved_step);
  ASSERT_EQ(a.training.size(), b.training.size());
  for (std::size_t i = 0; i < a.training.size(); ++i) {
    EXPECT_EQ(a.training[i].step, b.training[i].step);
    EXPECT_EQ(a.training[i].loss, b.training[i].loss);
    EXPECT_EQ(a.training[i].gradient_norm, b.training[i].gradient_norm);
    EXPECT_EQ(a.training[i].learning_rate, b.training[i].learning_rate);
    EXPECT_EQ(a.training[i].tokens, b.training[i].tokens);
  }
  ASSERT_EQ(a.validations.size(), b.validations.size());
  for (std::size_t i = 0; i < a.validations.size(); ++i) {
    EXPECT_EQ(a.validations[i].step, b.validations[i].step);
    EXPECT_EQ(a.validations[i].figures, b.validations[i].figures);
    EXPECT_EQ(a.validations[i].tokens, b.validations[i].tokens);
    ASSERT_EQ(a.validations[i].experts.size(), b.validations[i].experts.size());
    for (const auto& [bank, balance] : a.validations[i].experts) {
      EXPECT_EQ(balance.entropy, b.validations[i].experts.at(bank).entropy);
    }
  }
}

TEST_F(RunTest, IsIdenticalWhicheverRankWrites) {
  train::Run written = run(), silent = run();
  Writer nobody;
  const TrainResult expected = write(written), got = silent.finish(nobody);
  EXPECT_EQ(got.parameters_sha256, expected.parameters_sha256);
  EXPECT_EQ(got.train_loss, expected.train_loss);
  EXPECT_EQ(expected.validation.size(), 4U);
  EXPECT_EQ(silent.history().saved_step, 20);
  EXPECT_TRUE(silent.history().best_step.has_value());
  expect_same(silent.history(), written.history());
  EXPECT_TRUE(fs::exists(best_file(folder_ / "run")));
  EXPECT_EQ(store::step_in(best_file(folder_ / "run")), written.history().best_step);
  EXPECT_FALSE(written.history().validations.front().experts.empty());
  expect_same(
      [&] {
        History read = read_history(folder_ / "run", 20, written.task().figures());
        read.best_step = written.history().best_step;
        read.saved_step = 20;
        return read;
      }(),
      written.history());
}

// Continues another process's checkpoint and metrics, without writing anything.
TEST_F(RunTest, ResumesIdenticallyWhicheverRankWrites) {
  train::Run whole = run();
  write(whole);
  const fs::path file = folder_ / "run" / "checkpoints" / "step_14.safetensors";
  const ResumePoint resumed{file, store::read_checkpoint(file)};
  History history = read_history(folder_ / "run", 14, whole.task().figures());
  EXPECT_EQ(history.validations.size(), 2U);
  for (const ValidationPoint& point : whole.history().validations) {  // as if it had been killed at step 14
    if (point.step <= 14 && tasks::figure(point.figures, "perplexity") <=
                                tasks::figure(history.validations.front().figures, "perplexity")) {
      history.best_step = point.step;
    }
  }
  history.saved_step = 14;
  train::Run rest = run(&resumed, history);
  Writer nobody;
  EXPECT_EQ(rest.finish(nobody).parameters_sha256, parameters_sha256(whole.model().parameters()));
  expect_same(rest.history(), whole.history());
}

// A norm divides values whose squares overflow by infinity, so the loss is finite: the loss of a uniform guess.
TEST_F(RunTest, ActivationsThatOverflowAreADivergence) {
  tiny::set(config_, "model.norm=rms model.head_bias=false train.learning_rate=1e7 train.warmup_steps=0");
  config_.train.evaluate_every = 1;  // before a gradient is not finite
  train::Run wild = run();
  Writer nobody;
  std::string why;
  try {
    wild.finish(nobody);
  } catch (const DivergedError& error) {
    why = error.what();
  }
  EXPECT_HAS(why, "the activations overflow (");
}

}  // namespace headroom::train::run_test
