#include "tools/compare/compare.h"

#include <ATen/Parallel.h>
#include <fmt/ranges.h>

#include "example.h"
#include "foundation/core/machine/system.h"
#include "headroom/store/open_model.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/statistics.h"
#include "training/train/loop/train.h"
#include "training/train/record/writer.h"

namespace headroom::compare::compare_test {

namespace fs = std::filesystem;
using CompareTest = compare_fixture::CompareTest;

TEST_F(CompareTest, TrainsEveryModelAndWritesThePage) {
  CompareRequest r = request();
  for (NamedConfig& named : r.configs) {
    named.config.train.learning_rate = 0.01;  // better than guessing after six steps
    named.config.train.batch_size = 64;
  }
  const CompareResult result = compare(r);
  ASSERT_EQ(result.runs.size(), 2u);
  EXPECT_FALSE(result.interrupted);
  ASSERT_EQ(result.notes.size(), 1u) << "only that 900 bytes of validation data are few";
  EXPECT_HAS(result.notes[0], "a standard error of 0.");
  EXPECT_HAS(result.notes[0], "The validation data is small: the loss ");
  for (const ComparedRun& run : result.runs) {
    EXPECT_EQ(run.result().steps, 6);
    EXPECT_EQ(run.result().validation.size(), 3u);
    EXPECT_GT(run.headline(), 1.0);
    EXPECT_GT(run.result().peak_memory_bytes, 0);
    EXPECT_GT(run.result().cpu_seconds, 0.0);
    EXPECT_GE(run.result().epochs, 2.0);
    EXPECT_NEAR(run.result().core_share, run.result().cpu_seconds / run.result().seconds / at::get_num_threads(), 1e-9);
    EXPECT_GT(run.attention_macs, 0);
    EXPECT_TRUE(fs::exists(folder_ / "out" / run.name / "result.json"));
    ASSERT_EQ(run.samples.size(), 1u);
  }
  EXPECT_EQ(result.prompts.front(), "line 0 says 0 & <b>\nline 1 says ") << "the beginning of the validation data";
  const std::string page = read_text_file(result.report);
  EXPECT_HAS(page, "line 0 says 0 & \\u003cb>");
  EXPECT_HAS(page, "headroom compare four.toml one.toml");

  const Json json = to_json(result);
  for (const char* key :
       {"name", "steps", "train_loss", "validation_loss", "tokens_per_second", "seconds", "peak_memory_bytes",
        "parameters", "parameters_sha256", "attention_macs", "attention_memory", "cpu_seconds", "core_share"}) {
    EXPECT_TRUE(json.at("runs").at(1).contains(key)) << key;
  }
  EXPECT_TRUE(json.at("runs").at(0).at("executed").contains("step_macs"));
}

// A step takes a few milliseconds at most, so a second suffices for all steps but not for a million.
TEST_F(CompareTest, ABudgetShortensAllModelsByTheSameFactor) {
  CompareRequest r = request();
  r.configs[0].config.train.steps = 2'000'000;
  r.configs[1].config.train.steps = 1'000'000;
  for (NamedConfig& named : r.configs) {
    named.config.train.evaluate_every = 0;
    named.config.train.checkpoint_every = 0;
  }
  CompareRequest shorter = r;
  set_steps_within(4.0, shorter);
  const std::int64_t steps = shorter.configs[0].config.train.steps;
  EXPECT_TRUE(steps > 10 && steps < 200'000) << steps;
  EXPECT_NEAR(static_cast<double>(shorter.configs[1].config.train.steps), static_cast<double>(steps) / 2.0, 0.5);
  CompareRequest enough = request();
  set_steps_within(600.0, enough);
  EXPECT_EQ(enough.configs[0].config.train.steps, 6);
  fs::create_directories(r.out / "four");  // a comparison that has begun keeps its steps
  config::Config begun = r.configs[0].config;
  begun.train.steps = 10;
  train::write_config(begun, r.out / "four");
  set_steps_within(4.0, r);
  EXPECT_EQ(r.configs[0].config.train.steps, 10);
  EXPECT_EQ(r.configs[1].config.train.steps, 5);
  r.out = folder_ / "other";
  r.budget = 1e-6;
  EXPECT_HAS(refusal(r), "compare: --budget: 0.0 s is too short: one step of every run takes ");
  r.configs[1].config.train.seconds = 3.0;
  EXPECT_HAS(refusal(r), "compare: --budget: sets the steps, and so does train.seconds = 3 of one");
}

TEST_F(CompareTest, EverySeedIsARunAndMoreSeedsReuseExistingRuns) {
  CompareRequest r = request();
  const CompareResult one = compare(r);
  const std::string kept = read_text_file(folder_ / "out" / "four" / "result.json");
  r.seeds = 3;
  const CompareResult three = compare(r);
  EXPECT_EQ(read_text_file(folder_ / "out" / "four" / "result.json"), kept);
  ASSERT_EQ(three.runs.size(), 2u);
  for (const ComparedRun& run : three.runs) {
    ASSERT_EQ(run.trained.size(), 3u);
    EXPECT_EQ(run.trained[1].seed, 2);
    EXPECT_NE(run.trained[0].result.parameters_sha256, run.trained[1].result.parameters_sha256);
    EXPECT_TRUE(fs::exists(folder_ / "out" / run.name / "seed_3" / "result.json"));
    const std::vector<double> losses = run.over_seeds("loss");
    EXPECT_DOUBLE_EQ(run.headline(), (std::exp(losses[0]) + std::exp(losses[1]) + std::exp(losses[2])) / 3.0);
  }
  EXPECT_EQ(train::read_run_config(folder_ / "out" / "one" / "seed_2").train.seed, 2);
  EXPECT_EQ(three.runs[0].result().parameters_sha256, one.runs[0].result().parameters_sha256);
}

TEST_F(CompareTest, EachModelUsesItsOwnBestTunedValues) {
  CompareRequest r = request();
  r.seeds = 2;
  r.variations = {{"train.learning_rate", {"1e-6", "0.01"}}};
  const CompareResult two = compare(r);
  for (const ComparedRun& run : two.runs) {
    EXPECT_EQ(run.values, (Values{{"train.learning_rate", "0.01"}})) << "one that hardly learns in six steps lost";
    ASSERT_EQ(run.tuning.size(), 2u);
    EXPECT_TRUE(run.tuning[1].chosen && !run.tuning[0].chosen);
    EXPECT_GT(run.tuning[0].headline, run.tuning[1].headline);
    EXPECT_EQ(run.config.train.learning_rate, 0.01);
    ASSERT_EQ(run.trained.size(), 2u);
    EXPECT_EQ(run.tuning_seed, 1);
    EXPECT_EQ(run.trained[0].seed, 2) << "the seed that has selected the values is not compared";
    EXPECT_EQ(run.trained[1].seed, 3);
    EXPECT_EQ(run.folder, folder_ / "out" / run.name / "train.learning_rate=0.01" / "seed_2");
    EXPECT_TRUE(fs::exists(folder_ / "out" / run.name / "train.learning_rate=0.01" / "seed_3" / "result.json"));
    EXPECT_FALSE(fs::exists(folder_ / "out" / run.name / "train.learning_rate=1e-06" / "seed_2"));
  }
  ASSERT_EQ(two.notes.size(), 2u) << "no remark on differing learning rates, one on the edge for both models";
  EXPECT_EQ(two.notes[1],
            "The best train.learning_rate, 0.01, is the largest value tried. A better one may lie beyond it.");
  const std::string page = read_text_file(two.report);
  EXPECT_HAS(page, "learning_rate 1e-06");
  EXPECT_HAS(render_table(two), "learning_rate 0.01 ");
  const Json json = to_json(two).at("runs").at(0);
  EXPECT_EQ(json.at("values").at("train.learning_rate"), 0.01);
  EXPECT_EQ(json.at("tried").at(1).at("chosen"), true);
  EXPECT_HAS(to_json(two).at("conclusion").get<std::string>(), "chosen with seed 1, which is not among the compared");
  EXPECT_EQ(to_json(report(r.out)).at("conclusion"), to_json(two).at("conclusion"));

  // If a new value is between the others, only its runs are trained.
  const std::string kept = two.runs[0].trained[1].result.parameters_sha256;
  const auto written = fs::last_write_time(folder_ / "out/four/train.learning_rate=0.01/seed_2/result.json");
  r.variations[0].values = {"1e-6", "0.01", "1e-5"};
  EXPECT_EQ(compare(r).runs[0].trained[1].result.parameters_sha256, kept);
  EXPECT_EQ(fs::last_write_time(folder_ / "out/four/train.learning_rate=0.01/seed_2/result.json"), written);
}

TEST_F(CompareTest, ATunedValueThatDivergesIsNotSelected) {
  CompareRequest r = request();
  r.configs.resize(1);
  r.variations = {{"train.learning_rate", {"1e30", "0.001"}}};
  for (int again = 0; again < 2; ++again) {
    const CompareResult result = compare(r);
    EXPECT_EQ(result.runs[0].values[0].second, "0.001");
    EXPECT_TRUE(std::isnan(result.runs[0].tuning[0].headline));
    EXPECT_HAS(render_table(result), "learning_rate 1e+30  diverged");
    EXPECT_HAS(result.conclusion.back(), "chosen with seed 1, the one that is compared");
  }
  r.variations[0].values = {"1e30", "9e29"};
  r.out = folder_ / "wild";
  EXPECT_HAS(compare(r).failure, "four: diverged with the best of the values tried: ");
  r.seeds = 2;
  const CompareResult wild = compare(r);
  EXPECT_HAS(wild.failure, "four: diverged with the best of the values tried: ");
  EXPECT_HAS(render_table(wild), "diverged");
  r.seeds = 1;
  r.variations.clear();
  r.out = folder_ / "half";
  r.configs[0].config.train.learning_rate = 1e30;
  r.configs.push_back(config("one", 1));
  const CompareResult half = compare(r);
  EXPECT_TRUE(half.failure.starts_with("four: ")) << half.failure;
  EXPECT_TRUE(fs::exists(half.report)) << "the others are trained and shown all the same";
  EXPECT_HAS(render_table(half), "diverged");
  EXPECT_EQ(half.runs[0].samples.size(), 0u);
  EXPECT_EQ(half.runs[1].samples.size(), 1u);
}

// The figures and the test results belong to the checkpoint with the best validation.
TEST_F(CompareTest, FiguresAreOfTheBestValidationIfItsParametersAreKept) {
  CompareRequest r = request();
  for (NamedConfig& named : r.configs) {
    named.config.train.learning_rate = 1.0;  // too large for the last steps
    named.config.train.warmup_steps = 6;
    named.config.train.keep_best = true;
  }
  r.seeds = 2;
  r.test = {(folder_ / "train.txt").string()};
  const CompareResult result = compare(r);
  for (const ComparedRun& run : result.runs) {
    for (const TrainedRun& trained : run.trained) {
      const auto best = std::ranges::min_element(
          trained.result.validation, {},
          [](const train::ValidationPoint& point) { return tasks::figure(point.figures, "loss"); });
      EXPECT_LT(best->step, 6) << "it was better in between";
      EXPECT_EQ(trained.result.best_step, best->step);
      EXPECT_EQ(trained.result.figures().at("loss"), best->figures.at("loss"));
    }
  }
  EXPECT_HAS(fmt::format("{}", fmt::join(result.notes, " ")), "those of each run's best validation");
  const ComparedRun& first = result.runs.front();
  const store::OpenedModel opened = store::open_model((first.folder / "checkpoints" / "best.safetensors").string(), {});
  const tasks::Task& task = first.task();
  const auto data =
      task.open_evaluation({.config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = r.test});
  const tasks::Figures figures = task.figures_of(data->evaluate(*opened.model, {.context = opened.context}).sums);
  EXPECT_EQ(first.tests_over_seeds("loss").front(), figures.at("loss"));
  EXPECT_EQ(first.trained[0].test.data, data->identity());
  const Json json = to_json(result).at("runs").at(0);
  EXPECT_EQ(json.at("seeds").at(0).at("test_loss"), figures.at("loss"));
  EXPECT_NEAR(json.at("test_perplexity_mean").get<double>(), mean(first.tests_over_seeds("perplexity")), 1e-12);
  const std::string table = render_table(result);
  EXPECT_HAS(table, with_deviation(first.tests_over_seeds("perplexity")));
  EXPECT_HAS(table, with_deviation(first.over_seeds("perplexity")));
  EXPECT_EQ(render_table(report(r.out)), table);
  const auto written = fs::last_write_time(first.folder / "test.json");
  EXPECT_EQ(render_table(compare(r)), table);
  EXPECT_EQ(fs::last_write_time(first.folder / "test.json"), written) << "it is not measured again";
  r.test = {(folder_ / "nowhere.txt").string()};
  r.out = folder_ / "unused";
  EXPECT_HAS(refusal(r), "nowhere.txt");
  EXPECT_FALSE(fs::exists(r.out / "four")) << "before the first step";
}

TEST_F(CompareTest, ReportShowsWhatHasFinished) {
  compare(request());
  fs::remove(folder_ / "out" / "one" / "result.json");
  const CompareResult result = report(folder_ / "out");
  ASSERT_EQ(result.runs.size(), 1u);
  ASSERT_EQ(result.notes.size(), 2u);
  EXPECT_EQ(result.notes[1], "Not finished yet: one.");
  fs::remove(folder_ / "out" / "four" / "result.json");
  EXPECT_THROW(report(folder_ / "out"), UserError);
}

TEST_F(CompareTest, ASweepTrainsEveryCombinationAndPutsTheBestFirst) {
  CompareRequest r = quick_sweep({"1e-6", "1e30", "0.01"});
  r.configs[0].config.train.steps = 6;
  r.variations.push_back({"model.attention.n_heads", {"4", "2"}});
  const CompareResult result = sweep(r);
  ASSERT_EQ(result.runs.size(), 6u);
  EXPECT_EQ(result.runs[0].values[0].second, "0.01");
  EXPECT_TRUE(std::isnan(result.runs[5].headline()));
  EXPECT_EQ(result.runs[5].values[0].second, "1e+30");
  EXPECT_TRUE(fs::exists(folder_ / "sweep" / "model.attention.n_heads=2,train.learning_rate=0.01" / "result.json"));
  const std::string table = render_table(result);
  EXPECT_HAS(table, "diverged");
  EXPECT_EQ(table.find("model"), std::string::npos) << "values are names enough: " << table;
  const Json json = to_json(result).at("runs").at(0);
  EXPECT_EQ(json.at("values").at("train.learning_rate"), 0.01);
  const auto edge = std::ranges::find_if(
      result.notes, [](const std::string& note) { return note.starts_with("The best model.attention.n_heads"); });
  EXPECT_NE(edge, result.notes.end());

  const auto written = fs::last_write_time(result.runs[1].folder / "result.json");
  r.seeds = 2;
  EXPECT_EQ(sweep(r).runs[0].trained.size(), 2u);
  EXPECT_EQ(fs::last_write_time(result.runs[1].folder / "result.json"), written);
  EXPECT_EQ(to_json(report(r.out)).at("conclusion"), to_json(sweep(r)).at("conclusion"));
  r.variations.clear();
  EXPECT_THROW(sweep(r), UserError);
}

TEST(LoadConfigs, NamesAreFileNames) {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  const std::vector<NamedConfig> configs =
      load_configs({"demo/dense_h2", "demo/dense_h8", "demo/switchhead_h2"}, {"train.steps=103"});
  ASSERT_EQ(configs.size(), 3u);
  EXPECT_EQ(configs[0].name, "dense_h2");
  EXPECT_EQ(configs[1].name, "dense_h8");
  EXPECT_EQ(configs[2].config.train.steps, 103);
  const std::vector<NamedConfig> same = load_configs({"demo/dense_h2", "small/dense_h2"});
  EXPECT_EQ(same[0].name, "demo.dense_h2");
}

}  // namespace headroom::compare::compare_test
