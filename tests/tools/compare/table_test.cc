#include "tools/compare/report/table.h"

#include <gtest/gtest.h>

#include <sstream>

#include "example.h"

namespace headroom::compare {
namespace table_test {

using testing::example_result;
using testing::example_run;
using testing::example_seeds;

TEST(Table, HasALineARunWithItsFigures) {
  ComparedRun dense = example_run("dense_h8", 7.58), switchhead = example_run("switchhead_h2", 7.37, 376);
  switchhead.config.model.attention.projection = "experts";
  switchhead.config.model.attention.n_heads = 2;
  std::istringstream table(render_table(example_result({dense, switchhead})));
  std::vector<std::string> lines;
  for (std::string line; std::getline(table, line);) {
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 4u);
  for (const char* figure : {"dense_h8", "8", "2.70 M", "1.00 k", "1x", "7.58", "1.500", "1.23 k"}) {
    EXPECT_NE(lines[2].find(figure), std::string::npos) << figure << " in " << lines[2];
  }
  EXPECT_NE(lines[3].find("0.376x"), std::string::npos) << lines[3];
  EXPECT_NE(lines[3].find("2 (2/4 experts)"), std::string::npos) << lines[3];
  EXPECT_EQ(lines[2].size(), lines[3].size()) << "columns are aligned";
  EXPECT_LE(lines[2].size(), 150u);
}

TEST(Table, OfSeveralSeedsShowsDeviationsAndDifferences) {
  const std::string table = render_table(
      example_result({example_seeds("dense", {7.5, 7.7, 7.6}), example_seeds("moa", {7.0, 7.3, 7.1}, 376)}));
  EXPECT_NE(table.find("difference"), std::string::npos) << table;
  EXPECT_NE(table.find("7.60 \u00b1 0.10"), std::string::npos) << table;
  EXPECT_NE(table.find("-0.47 [-0.61, -0.32]"), std::string::npos) << table;
  EXPECT_EQ(render_table(example_result({example_run("a", 7.0), example_run("b", 8.0)})).find("difference"),
            std::string::npos);
}

TEST(Table, ShowsWhatIsNotKnownAsADash) {
  ComparedRun run = example_run("a", 7.0);
  train::TrainResult& result = run.trained[0].result;
  result.validation.clear();
  result.peak_memory_bytes = 0;
  result.tokens_per_second = 0.0;
  result.parameters_sha256.clear();
  const std::string table = render_table(example_result({run}));
  EXPECT_NE(table.find("\u2013  "), std::string::npos) << table;
  EXPECT_EQ(table.find("0 B"), std::string::npos) << table;
  const Json json = to_json(example_result({run})).at("runs").at(0);
  for (const char* key : {"validation_loss", "tokens_per_second", "peak_memory_bytes", "parameters_sha256"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key << " in " << json.at(key);
  }
  EXPECT_EQ(json.at("steps"), 100);
  EXPECT_TRUE(to_json(train::TrainResult(), run.task()).at("train_loss").is_null());
}

TEST(Table, CountsCharactersWhenItAligns) {
  std::istringstream table(render_table(example_result({example_run("größe", 7.0), example_run("abcde", 7.0)})));
  std::string line, first, second;
  std::getline(table, line);
  std::getline(table, line);
  std::getline(table, first);
  std::getline(table, second);
  EXPECT_EQ(first.size(), second.size() + 2);  // two characters of two bytes
}

}  // namespace table_test
}  // namespace headroom::compare
