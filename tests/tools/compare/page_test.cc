#include <regex>

#include "example.h"

namespace headroom::compare::page_test {

using testing::example_run;
using testing::example_seeds;

CompareResult example() {
  CompareResult result;
  result.title = "Title";
  result.command = "headroom compare a b";
  result.runs = {example_run("a", 7.0), example_run("b", 8.0, 400)};
  result.prompts = {"once upon"};
  result.runs[0].samples = {" a time"};
  result.runs[1].samples = {" a prompt"};
  result.notes = {"train.seed differs: 1 (a) and 2 (b)."};
  result.conclusion = conclude(result.runs);
  return result;
}

void collect(const Json& json, const std::string& key, std::vector<Json>& found) {
  if (json.is_object() && json.contains(key)) {
    found.push_back(json);
  }
  for (const Json& inner : json.is_structured() ? json : Json::array()) {
    collect(inner, key, found);
  }
}

// Returns the blocks of a kind, including nested blocks.
std::vector<Json> blocks_of(const Json& page, const std::string& kind) {
  std::vector<Json> found;
  collect(page, kind, found);
  return found;
}

// Returns the block whose value of `kind` is `name`; null if there is none.
Json block_of(const Json& page, const std::string& kind, const std::string& name) {
  for (const Json& block : blocks_of(page, kind)) {
    if (block.at(kind) == name) {
      return block;
    }
  }
  return {};
}

Json chart_of(const Json& page, const std::string& caption) {
  return block_of(page, "figure", caption).at("blocks").at(0);
}

bool has_row(const Json& page, const Json& row) {
  return std::ranges::any_of(blocks_of(page, "table"), [&](const Json& block) {
    const Json& rows = block.at("table").at("rows");
    return std::ranges::find(rows, row) != rows.end();
  });
}

TEST(ComparePage, ShowsEverythingThatWasCompared) {
  const CompareResult result = example();
  const Json page = page_of(result);
  for (const std::string& part : {result.conclusion.at(0), result.conclusion.at(1), result.conclusion.at(2),
                                  result.command, std::string("train.seed differs"), std::string("once upon"),
                                  std::string(" a prompt"), std::string("a CPU, 2 threads, fp32")}) {
    EXPECT_HAS(page.dump(), part);
  }
  EXPECT_EQ(blocks_of(page, "chart").size(), 3u) << "two curves, attention MACs; the same MACs of a step";
  ASSERT_EQ(blocks_of(page, "details").size(), 1u) << "the first one's whole config";
  EXPECT_HAS(blocks_of(page, "code").at(0).dump(), "d_model = 256");
}

TEST(ComparePage, OfSeveralSeedsShowsBandsIntervalsAndWhatWasTuned) {
  CompareResult result = example();
  result.runs = {example_seeds("a", {7.0, 7.2}), example_seeds("b", {8.0, 8.1}, 400)};
  result.variations = {{"train.learning_rate", {"0.001", "1e+30"}}};
  for (ComparedRun& run : result.runs) {
    run.values = {{"train.learning_rate", "0.001"}};
    run.tuning = {{{{"train.learning_rate", "0.001"}}, 7.0, true},
                  {{{"train.learning_rate", "1e+30"}}, std::nan(""), false}};
  }
  const Json page = page_of(result);
  EXPECT_EQ(blocks_of(page, "chart").size(), 4u) << "two curves, the differences, attention MACs";
  EXPECT_EQ(chart_of(page, "Validation perplexity over steps").at("lines").at(1).at("band").size(), 5u);
  EXPECT_EQ(chart_of(page, "Difference from a").at("rows").size(), 1u);
  EXPECT_TRUE(chart_of(page, "Quality against attention MACs").at("points").at(1).contains("interval"));
  EXPECT_HAS(page.dump(), "7.10 \u00b1 0.14");
  EXPECT_TRUE(has_row(page, {"learning_rate 0.001", "7.00 \u2605", "7.00 \u2605"}));
  EXPECT_TRUE(has_row(page, {"learning_rate 1e+30", "diverged", "diverged"}))
      << "a line a combination, a column a model";
  EXPECT_HAS(page.dump(), "1; 2, for parameters");
  const Json columns = blocks_of(page, "table").at(0).at("table").at("columns");
  EXPECT_EQ(columns.size(), 7u) << "costs are only in the cost table, so that the result table fits the page";
}

TEST(ComparePage, ShowsLossesExpertsAndQualityAgainstCost) {
  CompareResult result = example();
  result.runs = {example_seeds("a", {7.0, 9.0}), example_seeds("b", {7.5, 7.5}, 400)};
  for (ComparedRun& run : result.runs) {
    for (TrainedRun& seed : run.trained) {
      seed.log.training = {{.step = 10, .loss = 3.0}, {.step = 100, .loss = 2.0}};
    }
  }
  result.runs[1].executed["step_macs"] = 9000;
  result.runs[1].trained[0].log.validation = {
      {.step = 20, .experts = {{"a", {.entropy = 0.9}}, {"b", {.entropy = 0.5}}}},
      {.step = 100, .experts = {{"a", {.entropy = 0.8}}, {"b", {.entropy = 0.0}}}}};
  const Json page = page_of(result);
  const Json losses = chart_of(page, "Training and validation loss").at("lines");
  EXPECT_EQ(losses.size(), 6u) << "for each run: what was logged, its running mean, the validation";
  const double a = (std::log(7.0) + std::log(9.0)) / 2.0 + std::exp(-100.0 / 30.0);
  EXPECT_NEAR(losses.at(2).at("points").back().at(1).get<double>(), a, 1e-5) << "the mean over the seeds";
  EXPECT_EQ(chart_of(page, "Use of experts").at("lines").at(1).at("band").at(1), Json::parse("[100.0, 0.0, 0.8]"));
  EXPECT_FALSE(block_of(page, "figure", "Quality against MACs of a training step").is_null());
}

// 6 of 8 and 8 of 8 answers are right. Student's interval of the mean, 0.875 -/+ 12.7 * 0.125, is cut to [0, 1].
TEST(ComparePage, AnAccuracyHasALinearAxisAndAnIntervalWithinItsBounds) {
  CompareResult result;
  result.runs = {example_seeds("a", {7.0, 7.0}), example_seeds("b", {7.0, 7.0}, 400)};
  for (ComparedRun& run : result.runs) {
    run.config.model.kind = config::ModelKind::classifier;
    run.config.model.n_classes = 4;
    for (std::size_t seed = 0; seed < 2; ++seed) {
      run.trained[seed].result.validation = {
          {.step = 50, .figures = {{"loss", 1.0}, {"accuracy", 0.5}}},
          {.step = 100, .figures = {{"loss", 0.5}, {"accuracy", 0.75 + 0.25 * seed}}}};
    }
  }
  const Json page = page_of(result), scatter = chart_of(page, "Quality against attention MACs");
  EXPECT_EQ(scatter.at("bounds"), Json::parse("[0.0, 1.0]"));
  EXPECT_EQ(scatter.at("points").at(0).at("interval"), Json::parse("[0.0, 1.0]"));
  EXPECT_EQ(chart_of(page, "Validation accuracy over steps").at("bounds"), Json::parse("[0.0, 1.0]"));
  EXPECT_EQ(page.dump().find("better; logarithmic"), std::string::npos);
  EXPECT_TRUE(chart_of(page_of(example()), "Quality against attention MACs").at("bounds").is_null());
}

TEST(ComparePage, ShowsHowConfigsDiffer) {
  CompareResult result = example();
  result.runs[1].config.model.attention.n_heads = 3;
  const Json page = page_of(result);
  EXPECT_TRUE(has_row(page, {"model.attention.n_heads", "8", "3"}));
  EXPECT_FALSE(has_row(page, {"model.d_model", "256", "256"}));
  result.runs[1].config.train.precision = config::Precision::bf16;  // the value chosen for "auto"
  EXPECT_EQ(page_of(result).dump().find("train.precision\",\""), std::string::npos);
  EXPECT_TRUE(std::regex_search(page.dump(), std::regex("made 20[0-9][0-9]-[0-9-]+ [0-9:]+ UTC by headroom 0.")));
}

TEST(ComparePage, ShowsCostsAsOneTableOfBars) {
  CompareResult result = example();
  result.runs[1].trained[0].result.peak_memory_bytes = 0;
  const Json page = page_of(result);
  const Json quality = blocks_of(page, "table").front().at("table"),
             costs = blocks_of(page, "table").back().at("table");
  EXPECT_TRUE(std::ranges::find(quality.at("rows").at(0), Json{{"text", "7.00"}, {"best", true}}) !=
              quality.at("rows").at(0).end());
  EXPECT_EQ(quality.dump().find("{\"text\":\"1.500\""), std::string::npos) << "equal bits per byte are nobody's best";
  EXPECT_EQ(costs.at("columns").size(), 3u) << "names, attention MACs and peak memory: the rest is alike";
  EXPECT_EQ(costs.at("rows").at(1).at(1),
            (Json{{"text", "400"}, {"best", true}, {"small", "0.4x"}, {"bar", {0.4, 1}}}));
  EXPECT_TRUE(costs.at("rows").at(1).at(2).at("bar").at(0).get<double>() != 1.0) << "what is not known";
  EXPECT_HAS(page.dump(), "The same for all: attention memory (500), MACs of a training step (3.00 k)");
}

CompareResult single() {
  CompareResult result = example();
  result.kind = Kind::run;
  result.runs.resize(1);
  result.notes.clear();
  result.prompts.clear();
  result.runs[0].trained[0].log.training = {{.step = 10, .loss = 3.0, .learning_rate = 1e-3, .gradient_norm = 2.0},
                                            {.step = 100, .loss = 2.0, .learning_rate = 5e-4, .gradient_norm = 0.5}};
  result.conclusion = conclude(result.runs);
  return result;
}

TEST(ComparePage, MarksPointsThatCoverPartOfTheData) {
  CompareResult result = single();
  EXPECT_EQ(page_of(result).dump().find("part of the validation data"), std::string::npos);
  result.runs[0].trained[0].result.validation[0].predictions = 64;
  EXPECT_HAS(page_of(result).dump(), "part of the validation data");
}

TEST(ComparePage, DoesNotMarkADivergedRun) {
  CompareResult result = example();
  TrainedRun& wild = result.runs[1].trained[0];
  wild.diverged = "the loss is nan";
  wild.result = {};
  const Json row = blocks_of(page_of(result), "table").front().at("table").at("rows").at(1);
  EXPECT_HAS(row.dump(), "diverged");
  EXPECT_EQ(row.dump().find("best"), std::string::npos) << row;
}

}  // namespace headroom::compare::page_test
