#include "tools/compare/figures/scaling.h"

#include "example.h"

namespace headroom::compare::effective_speedup_test {

using testing::example_result;
using testing::example_run;

using Points = std::vector<std::pair<double, double>>;  // seconds, at 100 steps each, and loss

std::vector<train::ValidationPoint> validations(const Points& points) {
  std::vector<train::ValidationPoint> all;
  for (const auto& [seconds, loss] : points) {
    all.push_back({.step = std::lround(100.0 * seconds), .seconds = seconds, .figures = {{"loss", loss}}});
  }
  return all;
}

// Returns a run with one seed for each curve.
ComparedRun run_of(const std::string& name, const std::vector<Points>& curves) {
  ComparedRun run = example_run(name, 10.0);
  run.trained.resize(curves.size(), run.trained.front());
  for (std::size_t seed = 0; seed < curves.size(); ++seed) {
    train::TrainResult& result = run.trained[seed].result;
    result.validation = validations(curves[seed]);
    if (!curves[seed].empty()) {
      result.seconds = curves[seed].back().first;
      result.steps = run.config.train.steps = std::lround(100.0 * result.seconds);
    }
    for (train::ValidationPoint& point : result.validation) {
      tasks::complete(point.figures, run.task().figures());
    }
  }
  return run;
}

const Points kSlow = {{1.0, 6.0}, {2.0, 4.0}, {4.0, 3.0}};
const Points kFast = {{1.0, 4.0}, {2.0, 2.0}, {4.0, 1.0}};  // loss = 4 / seconds

// By hand: kSlow ends at a loss of 3 after 4 s; kFast reaches it after 4/3 s.
TEST(EffectiveSpeedup, IsTheTimeToTheHigherOfTheLastLosses) {
  const EffectiveSpeedups faster = effective_speedups({run_of("slow", {kSlow}), run_of("fast", {kFast})});
  EXPECT_NEAR(faster.of_runs.at(1).value().tokens.ratio, 3.0, 1e-12);
  EXPECT_FALSE(faster.of_runs.at(0));
  EXPECT_NEAR(faster.of_runs.at(1).value().time.ratio, 3.0, 1e-12);
  EXPECT_NEAR(faster.of_runs[1]->time.loss, 3.0, 1e-12);
  EXPECT_FALSE(faster.of_runs[1]->time.low) << "one seed";
  const EffectiveSpeedups slower = effective_speedups({run_of("fast", {kFast}), run_of("slow", {kSlow})});
  EXPECT_NEAR(slower.of_runs.at(1).value().time.ratio, 1.0 / 3.0, 1e-12);
  const EffectiveSpeedups same = effective_speedups({run_of("a", {kFast}), run_of("b", {kFast})});
  EXPECT_NEAR(same.of_runs.at(1).value().time.ratio, 1.0, 1e-12);
}

// By hand: two seeds have the ratios 2 and 8. The logarithms have the mean ln 4 and the standard error ln 2; Student's
// t for one degree of freedom is 12.7062.
TEST(EffectiveSpeedup, HasAnIntervalOverTheSeeds) {
  const Points end_at_2 = {{1.0, 5.0}, {2.0, 4.0}, {4.0, 2.0}}, by_8 = {{0.25, 4.0}, {0.5, 2.0}, {4.0, 1.0}};
  const EffectiveSpeedups speedups =
      effective_speedups({run_of("slow", {end_at_2, end_at_2}), run_of("fast", {kFast, by_8})});
  const Saving& time = speedups.of_runs.at(1).value().time;
  EXPECT_NEAR(time.ratio, 4.0, 1e-9);
  EXPECT_NEAR(time.low.value(), 4.0 * std::pow(2.0, -12.7062), 1e-7);
  EXPECT_NEAR(time.high.value(), 4.0 * std::pow(2.0, 12.7062), 1.0);
}

TEST(EffectiveSpeedup, ACurveThatRisesAgainCountsFromItsLastCrossing) {
  const Points back = {{1.0, 2.0}, {2.0, 6.0}, {4.0, 1.5}};
  const EffectiveSpeedups speedups = effective_speedups({run_of("slow", {kSlow}), run_of("back", {back})});
  EXPECT_NEAR(speedups.of_runs.at(1).value().time.ratio, 4.0 / (2.0 * std::pow(2.0, 0.5)), 1e-12) << "6 / 3 of 6 / 1.5";
}

TEST(EffectiveSpeedup, AValidationOfMoreTextDoesNotCount) {
  ComparedRun slow = run_of("slow", {kSlow}), fast = run_of("fast", {kFast});
  for (ComparedRun* run : {&slow, &fast}) {
    std::vector<train::ValidationPoint>& points = run->trained[0].result.validation;
    for (train::ValidationPoint& point : points) {
      point.predictions = 1000;
    }
    points.push_back({.step = 80, .seconds = 8.0, .figures = {{"loss", 2.9}}});  // of the whole text
  }
  EXPECT_NEAR(effective_speedups({slow, fast}).of_runs.at(1).value().time.ratio, 3.0, 1e-12);
}

TEST(EffectiveSpeedup, HasAReasonWhereItIsUnknown) {
  const ComparedRun slow = run_of("slow", {kSlow});
  EXPECT_HAS(effective_speedups({slow, run_of("short_one", {{{1.0, 4.0}, {4.0, 2.0}}})}).reason, "short_one");
  EXPECT_HAS(effective_speedups({run_of("short_one", {{}}), slow}).reason, "train.evaluate_every");
  ComparedRun elsewhere = run_of("elsewhere", {kFast});
  elsewhere.trained[0].origin.machine = "another CPU";
  EXPECT_HAS(effective_speedups({slow, elsewhere}).reason, "machines");
  ComparedRun lost = run_of("lost", {kFast});
  lost.trained[0].diverged = "loss nan";
  EXPECT_HAS(effective_speedups({slow, lost}).reason, "lost diverged");
  const EffectiveSpeedups others = effective_speedups({slow, lost, run_of("fast", {kFast})});
  EXPECT_FALSE(others.of_runs.at(1));
  EXPECT_NEAR(others.of_runs.at(2).value().time.ratio, 3.0, 1e-12);
  EXPECT_HAS(others.reason, "Some effective speedups are not given: lost diverged");
  EXPECT_EQ(effective_speedups({slow}).reason, "") << "nothing to compare";
}

// There are two classes; a uniform guess has the loss ln 2 = 0.6931.
ComparedRun two_classes(const std::string& name, const Points& points, double error) {
  ComparedRun run = example_run(name, 10.0);
  run.config.model.kind = config::ModelKind::classifier;
  run.config.model.n_classes = 2;
  run.trained[0].result.validation = validations(points);
  for (train::ValidationPoint& point : run.trained[0].result.validation) {
    point.figures[std::string(tasks::kLossError)] = error;
  }
  return run;
}

TEST(EffectiveSpeedup, IsNotGivenForModelsAtChance) {
  const Points one = {{1.0, 0.6935}, {2.0, 0.6930}, {4.0, 0.6926}},
               other = {{1.0, 0.6933}, {2.0, 0.6929}, {4.0, 0.6929}};
  EXPECT_HAS(effective_speedups({two_classes("one", one, 0.003), two_classes("other", other, 0.003)}).reason,
             "the loss of one is not below that of guessing");
  const Points learnt = {{1.0, 0.6}, {2.0, 0.4}, {4.0, 0.3}};
  EXPECT_HAS(effective_speedups({two_classes("learnt", learnt, 0.003), two_classes("other", other, 0.003)}).reason,
             "the loss of other is not below that of guessing");
  EXPECT_NEAR(effective_speedups({two_classes("learnt", learnt, 0.003), two_classes("same", learnt, 0.003)})
                  .of_runs.at(1)
                  .value()
                  .time.ratio,
              1.0, 1e-12);
}

// The loss is below a guess's loss, but flat: it is 0.5 after 4 s, and within 2 x 0.003 of 0.5 from 1 s on.
TEST(EffectiveSpeedup, IsNotGivenIfTheErrorsHideTheTime) {
  const Points flat = {{1.0, 0.504}, {2.0, 0.502}, {4.0, 0.500}}, falls = {{1.0, 0.64}, {2.0, 0.56}, {4.0, 0.500}};
  EXPECT_HAS(
      effective_speedups({two_classes("falls", falls, 0.003), two_classes("flat", flat, 0.003)}).reason,
      "the errors of the losses of flat leave the time to a loss of 0.5000 uncertain by more than a factor of 2");
  EXPECT_EQ(effective_speedups({two_classes("falls", falls, 0.003), two_classes("flat", flat, 0.0)}).reason, "");
}

// At half the speed, a model needs twice the time for the same tokens, whatever its validations take: all times are
// shares of the training time.
TEST(EffectiveSpeedup, RatiosOfTimesFollowFromTheTrainingTimes) {
  ComparedRun slow = run_of("slow", {kSlow}), fast = run_of("fast", {kFast});
  fast.trained[0].result.seconds *= 2.0;
  const EffectiveSpeedups speedups = effective_speedups({slow, fast});
  EXPECT_NEAR(speedups.of_runs.at(1).value().tokens.ratio, 3.0, 1e-12);
  EXPECT_NEAR(speedups.of_runs[1]->time.ratio, 1.5, 1e-12);
  EXPECT_HAS(conclude_speedups({slow, fast}, speedups).at(0),
             "slow needs 3.00 times the tokens and 1.50 times the training time of fast.");
}

TEST(EffectiveSpeedup, IsInTheTableOnThePageAndInJson) {
  CompareResult result = example_result({run_of("slow", {kSlow, kSlow}), run_of("fast", {kFast, kFast})});
  add_speedups(result);
  EXPECT_HAS(render_table(result), "3.00 [3.00, 3.00]");
  EXPECT_HAS(page_of(result).dump(), "\"name\":\"speedup\"");
  EXPECT_HAS(page_of(result).dump(), "effective speedup: in training time");
  const Json json = to_json(result).at("runs");
  EXPECT_TRUE(json.at(0).at("effective_speedup").is_null());
  EXPECT_NEAR(json.at(1).at("effective_speedup").at("ratio").get<double>(), 3.0, 1e-9);
  EXPECT_NEAR(json.at(1).at("effective_speedup").at("tokens").at("ratio").get<double>(), 3.0, 1e-9);
  result.kind = Kind::sweep;
  result.speedups = {};
  add_speedups(result);
  EXPECT_TRUE(result.speedups.of_runs.empty());
  const Points learnt = {{1.0, 0.6}, {2.0, 0.4}, {4.0, 0.3}};  // judged by the accuracy, as the demo's look-ups are
  CompareResult classes = example_result({two_classes("a", learnt, 0.003), two_classes("b", learnt, 0.003)});
  add_speedups(classes);
  EXPECT_TRUE(classes.speedups.of_runs.empty() && classes.notes.empty() && classes.conclusion.empty());
}

}  // namespace headroom::compare::effective_speedup_test
