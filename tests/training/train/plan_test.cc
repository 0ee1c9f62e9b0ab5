#include "training/train/loop/plan.h"

#include "folder_test.h"
#include "tiny/files.h"
#include "training/tasks/classes/classification.h"
#include "training/tasks/language/language_modelling.h"

namespace headroom::train::plan_test {

config::Config config_with(const std::function<void(config::TrainOptions&)>& change) {
  config::Config config = tiny::config();
  config.train.steps = 10;
  change(config.train);
  return config;
}

TEST(Plan, RunsActionsAtTheirConfiguredSteps) {
  const TrainingPlan plan(config_with([](config::TrainOptions& o) {
                            o.log_every = 4;
                            o.evaluate_every = 3;
                            o.checkpoint_every = 5;
                            o.sample_every = 0;
                          }),
                          tasks::language_modelling().figures());
  std::vector<std::int64_t> logged, validated, saved;
  for (std::int64_t step = 0; step <= 10; ++step) {
    EXPECT_EQ(plan.finished(step), step == 10);
    EXPECT_FALSE(plan.samples(step)) << "0: never";
    if (step > 0 && plan.logs(step)) {
      logged.push_back(step);
    }
    if (plan.validates(step, {})) {
      validated.push_back(step);
    }
    if (plan.saves(step)) {
      saved.push_back(step);
    }
  }
  EXPECT_EQ(logged, (std::vector<std::int64_t>{4, 8, 10}));
  EXPECT_EQ(validated, (std::vector<std::int64_t>{3, 6, 9, 10}));
  EXPECT_EQ(saved, (std::vector<std::int64_t>{5, 10}));
  EXPECT_FALSE(plan.validates(6, {.validations = {{.step = 3}, {.step = 6}}})) << "before it was killed";
  EXPECT_TRUE(plan.validates(9, {.validations = {{.step = 3}, {.step = 6}}}));
}

// The learning curve reads the same predictions at every point; a validation of all data follows the last point.
TEST(Plan, ValidatesAPartAndThenAllData) {
  const auto plan_of = [](std::int64_t evaluate_tokens, std::int64_t planned) {
    return TrainingPlan(config_with([&](config::TrainOptions& o) {
                          o.evaluate_tokens = evaluate_tokens;
                          o.evaluate_every = 5;
                        }),
                        tasks::language_modelling().figures(), planned);
  };
  EXPECT_EQ(plan_of(900, 40).predictions(), 40);
  EXPECT_EQ(plan_of(900, 0).predictions(), 900);
  EXPECT_EQ(plan_of(0, 0).predictions(), 0);
  const TrainingPlan plan = plan_of(900, 40);
  History history{.validations = {{.step = 5, .predictions = 40}}};
  EXPECT_FALSE(plan.validates_whole(5, history));
  EXPECT_TRUE(plan.validates(10, history));
  history.validations.push_back({.step = 10, .predictions = 40});
  EXPECT_FALSE(plan.validates(10, history));
  EXPECT_TRUE(plan.validates_whole(10, history)) << "also if it was killed after the last point";
  history.validations.push_back({.step = 10});
  EXPECT_FALSE(plan.validates(10, history));
  EXPECT_FALSE(plan.validates_whole(10, history));
  EXPECT_EQ(curve_of(history.validations).size(), 2U);
  EXPECT_FALSE(plan_of(900, 0).validates_whole(10, {}));
}

TEST(Plan, KeepsTheBestOfThisRun) {
  const auto keep = [](config::TrainOptions& o) { o.keep_best = true; };
  const TrainingPlan text(config_with(keep), tasks::language_modelling().figures()),
      classes(config_with(keep), tasks::sequence_classification().figures()),
      none(config_with([](config::TrainOptions&) {}), tasks::language_modelling().figures());
  const tasks::Figures worse = {{"perplexity", 9.0}, {"accuracy", 0.2}},
                       same = {{"perplexity", 8.0}, {"accuracy", 0.3}},
                       better = {{"perplexity", 7.0}, {"accuracy", 0.4}};
  History history{.validations = {{.step = 2, .figures = {{"perplexity", 8.0}, {"accuracy", 0.3}}},
                                  {.step = 4, .figures = {{"perplexity", 8.5}, {"accuracy", 0.25}}}}};
  EXPECT_TRUE(text.keeps_as_best(worse, history)) << "none is kept yet";
  history.best_step = 2;
  for (const TrainingPlan* plan : {&text, &classes}) {
    EXPECT_FALSE(plan->keeps_as_best(worse, history));
    EXPECT_FALSE(plan->keeps_as_best(same, history));
    EXPECT_TRUE(plan->keeps_as_best(better, history));
  }
  EXPECT_FALSE(none.keeps_as_best(better, history));
  history.best_step = 6;
  EXPECT_TRUE(text.keeps_as_best(worse, history)) << "it was of steps that this run went on from before";
}

TEST(Plan, NamesTheDivergedFigure) {
  const TrainingPlan plan(tiny::config(), tasks::language_modelling().figures());
  EXPECT_EQ(TrainingPlan::diverged(StepOutcome{.loss = 1.0}), "");
  EXPECT_EQ(TrainingPlan::diverged(StepOutcome{.loss = NAN, .gradient_norm = INFINITY}),
            "the loss is nan and the gradient norm inf");
  EXPECT_EQ(plan.diverged(tasks::Figures{{"loss", 1.0}}), "");
  EXPECT_EQ(plan.diverged(tasks::Figures{{"loss", INFINITY}}), "the validation loss is inf");
}

TEST(Plan, SavesOnceTheIntervalIsKnown) {
  TrainingPlan plan(config_with([](config::TrainOptions&) {}), tasks::language_modelling().figures());
  EXPECT_FALSE(plan.saves(5));
  plan.save_every(5);
  EXPECT_TRUE(plan.saves(5));
  EXPECT_FALSE(plan.saves(6));
}

TEST(Remark, ASlightlyHigherLossIsNotDivergence) {
  const double guessing = 5.5;
  EXPECT_EQ(remark_on(3.0, 3.6, guessing), "");
  EXPECT_EQ(remark_on(5.6, 5.2, guessing), "");
  EXPECT_HAS(remark_on(5.6, 6.0, guessing), "learnt nothing yet");
  EXPECT_NE(remark_on(40.0, 20.0, guessing).find("learnt nothing yet"), std::string::npos) << "it is getting better";
  EXPECT_HAS(remark_on(5.6, 8.3, guessing), "diverged");
}

config::Config with_steps(std::int64_t steps) {
  config::Config config;
  config.train.steps = steps;
  config.train.batch_size = 16;
  return config;
}

// The validation data have `rows` rows with ten predictions each; a training batch has 16 rows.
Validations planned(std::int64_t steps, double rows, bool keep_best = false) {
  config::Config config = with_steps(steps);
  config.train.keep_best = keep_best;
  return plan_validations(config, [rows](std::int64_t predictions) {
    return predictions == 0 ? rows : std::min(rows, std::ceil(static_cast<double>(predictions) / 10.0));
  });
}

TEST(Intervals, ValidatesTwentyTimesIfThatIsCheap) {
  for (const auto& [steps, rows, every] :
       {std::tuple(1000, 16.0, 50), {1010, 16.0, 51}, {1000, 0.0, 50}, {1, 0.0, 0}}) {
    EXPECT_EQ(planned(steps, rows).every, every) << steps;
    EXPECT_EQ(planned(steps, rows).predictions, 0) << steps;
  }
}

// 16000 rows are the forward passes of a thousand batches, which take as long as 400 steps. 8192 predictions are 820
// rows and take as long as 20.5 steps.
TEST(Intervals, ValidatesAtLeastTenTimesForAFiftiethOfTheTime) {
  const Validations whole = planned(400'000, 16000.0);
  EXPECT_EQ(whole.predictions, 0);
  EXPECT_EQ(whole.every, 20'000);
  EXPECT_EQ(planned(300'000, 16000.0).every, 20'000) << "fewer than twenty, because each takes long";
  for (const std::int64_t steps : {12'000, 40'000, 150'000}) {
    const Validations part = planned(steps, 16000.0);
    const double cost = 0.4 / 16.0 * std::ceil(static_cast<double>(part.predictions) / 10.0);  // in steps
    EXPECT_GE(part.predictions, 8192) << steps;
    EXPECT_EQ(part.every, steps / 10) << steps;
    EXPECT_LE(cost / static_cast<double>(part.every), 0.02) << steps;
    EXPECT_GT(2.0 * cost / static_cast<double>(part.every), 0.02) << steps;
    EXPECT_EQ(planned(steps, 16000.0, /*keep_best=*/true).predictions, 0) << "the best of all must be known";
  }
  EXPECT_EQ(planned(300, 16000.0, /*keep_best=*/true).every, 0) << "at the end only";
}

// A part of fewer than 8192 predictions would be imprecise. A short run spends up to a tenth of its time on it.
TEST(Intervals, ValidatesAShortRunLessOften) {
  EXPECT_EQ(planned(3000, 16000.0).every, 300);
  EXPECT_EQ(planned(3000, 16000.0).predictions, 8192);
  EXPECT_EQ(planned(1000, 16000.0).every, 205);
  EXPECT_EQ(planned(1000, 16000.0).predictions, 8192);
  EXPECT_EQ(planned(1000, 400.0).every, 100) << "the data are fewer predictions";
  EXPECT_EQ(planned(1000, 400.0).predictions, 0);
  EXPECT_EQ(planned(200, 16000.0).every, 0);
  EXPECT_EQ(planned(200, 16000.0).predictions, 0);
}

TEST(Intervals, WritesTenCheckpointsOrOneEveryTenMinutes) {
  EXPECT_EQ(steps_between_checkpoints(1000, 1.0, 30e6), 100);
  const std::int64_t long_run = steps_between_checkpoints(100'000, 1.0, 30e6);
  EXPECT_LE(long_run, 600);
  EXPECT_GE(long_run, 400);
  EXPECT_EQ(steps_between_checkpoints(100, 1000.0, 30e6), 1) << "a step takes longer";
}

TEST(Intervals, WritesFewerCheckpointsIfTheyTakeLong) {
  const double seconds = 0.03 + 30e6 / 2e8;
  const std::int64_t every = steps_between_checkpoints(2000, 0.05, 30e6);
  EXPECT_GT(every, 200);
  EXPECT_LE(seconds / (static_cast<double>(every) * 0.05), 0.006);
  EXPECT_GT(seconds / (static_cast<double>(every - 1) * 0.05), 0.006);
  EXPECT_EQ(steps_between_checkpoints(100, 0.001, 1e3), 0) << "done in a tenth of a second";
  EXPECT_EQ(steps_between_checkpoints(4000, 0.001, 1e3), 2000) << "four seconds: one checkpoint halfway";
  // 100 GB take so long on a slow disk that eight minutes of steps are too few.
  EXPECT_GT(steps_between_checkpoints(1'000'000, 1.0, 1e11), 540);
}

}  // namespace headroom::train::plan_test
