#include "tools/compare/report/sections.h"

#include "example.h"
#include "foundation/core/text/utf8.h"
#include "tools/compare/statistics.h"

namespace headroom::compare::table_test {

using testing::example_result;
using testing::example_run;
using testing::example_seeds;

TEST(Table, HasALineARunWithItsFigures) {
  ComparedRun dense = example_run("dense_h8", 7.58), switchhead = example_run("switchhead_h2", 7.37, 376);
  dense.trained[0].result.core_share = switchhead.trained[0].result.core_share = 0.75;
  switchhead.config.model.attention.projection = "experts";
  switchhead.config.model.attention.n_heads = 2;
  std::istringstream table(render_table(example_result({dense, switchhead})));
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) {
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 9u) << "two blocks";
  EXPECT_EQ(lines[2], "dense_h8             7.58     1.500  8                    2.70 M       100");
  EXPECT_EQ(lines[3], "switchhead_h2        7.37     1.500  2 (2/4 experts)      2.70 M       100");
  EXPECT_EQ(lines[7], "dense_h8          1.00 k        500  1 min 00 s   1.23 k  300.0 MiB    75%");
  EXPECT_EQ(lines[8], "switchhead_h2        376        500  1 min 00 s   1.23 k  300.0 MiB    75%");
}

TEST(Table, OfSeveralSeedsShowsDeviationsAndDifferences) {
  const std::string table = render_table(
      example_result({example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.0, 7.3, 7.1}, 376)}));
  EXPECT_HAS(table, "difference");
  EXPECT_HAS(table, "7.60 \u00b1 0.10");
  EXPECT_HAS(table, "-0.47 [-0.61, -0.32]");
  EXPECT_EQ(render_table(example_result({example_run("a", 7.0), example_run("b", 8.0)})).find("difference"),
            std::string::npos);
}

TEST(Table, OfLongNamesAndManyFiguresFits80Columns) {
  ComparedRun long_name = example_seeds("a_name_of_twenty_four_ch", {7.0, 7.3, 7.1});
  const std::string table = render_table(example_result({example_seeds("dense", {7.5, 7.7, 7.6}), long_name}));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), 80u) << line;
  }
  EXPECT_TRUE(table.find("validation") < table.find("paired") && table.find("paired") < table.find("heads")) << table;
}

// Two seeds read 6000 tokens, in 10 s and 30 s. The speed is 300 tokens per second, by the mean time of 20 s; the mean
// of the rates would be 400.
TEST(Table, SpeedAndTimeAgree) {
  ComparedRun run = example_seeds("uneven", {7.0, 7.1});
  for (std::size_t seed = 0; seed < 2; ++seed) {
    run.trained[seed].result.seconds = seed == 0 ? 10.0 : 30.0;
    run.trained[seed].result.tokens_per_second = 6000.0 / run.trained[seed].result.seconds;
  }
  EXPECT_NEAR(run.mean_seconds(), 20.0, 1e-12);
  EXPECT_NEAR(run.tokens_per_second(), 300.0, 1e-9);
  for (TrainedRun& trained : run.trained) {  // the log also counts the first steps
    trained.log.training.push_back({.step = 100, .tokens = 5000});
  }
  EXPECT_NEAR(run.tokens_per_second(), 250.0, 1e-9);
}

TEST(Table, ShowsUnknownValuesAsADash) {
  ComparedRun run = example_run("a", 7.0);
  train::TrainResult& result = run.trained[0].result;
  result.validation.clear();
  result.peak_memory_bytes = 0;
  result.tokens_per_second = 0.0;
  result.parameters_sha256.clear();
  const std::string table = render_table(example_result({run}));
  EXPECT_HAS(table, "\u2013  ");
  EXPECT_EQ(table.find("0 B"), std::string::npos) << table;
  const Json json = to_json(example_result({run})).at("runs").at(0);
  for (const char* key : {"validation_loss", "tokens_per_second", "peak_memory_bytes", "parameters_sha256"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key << " in " << json.at(key);
  }
  EXPECT_EQ(json.at("steps"), 100);
  EXPECT_TRUE(to_json(train::TrainResult(), run.task()).at("train_loss").is_null());
}

}  // namespace headroom::compare::table_test

namespace headroom::compare::markup_test {

TEST(Markup, NumbersKeepThreeDigits) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(512), "512");
  EXPECT_EQ(short_number(999.7), "1.00 k");
  EXPECT_EQ(short_number(762880), "763 k");
  EXPECT_EQ(short_number(2695764), "2.70 M");
  EXPECT_EQ(short_number(453427200), "453 M");
  EXPECT_EQ(short_number(5368709120), "5.37 G");
  EXPECT_EQ(short_number(std::nan("")), "not finite");
  EXPECT_EQ(plain_number(0.95312), "0.9531");
  EXPECT_EQ(plain_number(1.0), "1.00");
  EXPECT_EQ(plain_number(7.3749), "7.37");
  EXPECT_EQ(plain_number(23.14), "23.14");
  EXPECT_EQ(plain_number(9.996), "10.00");
  EXPECT_EQ(plain_number(120.2), "120.2");
  EXPECT_EQ(plain_number(999.96), "1,000");
  EXPECT_EQ(plain_number(1203.7), "1,204");
  EXPECT_EQ(plain_number(1234567), "1,234,567");
  EXPECT_EQ(plain_number(-1234), "-1,234");
  EXPECT_EQ(plain_number(INFINITY), "not finite");
  EXPECT_EQ(plain_number(1e300), "1e+300");
  EXPECT_EQ(ratio_text(0.37641), "0.376x");
}

TEST(Markup, SpreadsKeepTwoDigits) {
  EXPECT_EQ(with_deviation(7.3749, std::nan("")), "7.37");
  EXPECT_EQ(with_deviation(7.3749, 0.0), "7.37");
  EXPECT_EQ(with_deviation(7.3749, 0.052), "7.375 \u00b1 0.052");
  EXPECT_EQ(with_deviation(1204.2, 31.0), "1204 \u00b1 31");
  EXPECT_EQ(with_deviation(std::nan(""), 1.0), "not finite");
  EXPECT_EQ(interval_text({-0.2144, -0.3, -0.1288}), "-0.214 [-0.300, -0.129]");
  EXPECT_EQ(interval_text({12, 2, 22}), "12 [2, 22]");
  EXPECT_EQ(interval_text({-0.04, -20, 19.9}), "0 [-20, 20]");
  EXPECT_EQ(plain_number(-0.00001), "0.0000");
  EXPECT_EQ(short_number(-0.0), "0");
}

}  // namespace headroom::compare::markup_test
