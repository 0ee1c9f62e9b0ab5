#include "tools/compare/run/fairness.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "tools/compare/compare.h"

namespace headroom::compare {
namespace fairness_test {

std::vector<NamedConfig> two() {
  return {{.name = "a", .config = {}}, {.name = "b", .config = {}}};
}

std::string refusal(const std::vector<NamedConfig>& configs) {
  try {
    check_fairness(configs);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Fairness, ModelsMayDiffer) {
  std::vector<NamedConfig> configs = two();
  configs[1].config.model.attention.n_heads = 2;
  configs[1].config.model.mlp.d_hidden = 77;
  configs[1].config.train.checkpoint_every = 5;
  EXPECT_TRUE(check_fairness(configs).empty());
}

TEST(Fairness, OtherTokensAreRefused) {
  std::vector<NamedConfig> configs = two();
  configs[1].config.train.evaluate_tokens = 77;
  EXPECT_EQ(refusal(configs),
            "compare: train.evaluate_tokens differs: 0 (a) and 77 (b): figures over different data cannot be compared");
  configs = two();
  configs[1].config.tokenizer.kind = config::TokenizerKind::bytes;
  EXPECT_TRUE(refusal(configs).starts_with("compare: a and b have different tokenizers (sentencepiece and bytes): "));
  configs[1].config.tokenizer.model = "its.model";  // the file decides
  EXPECT_EQ(refusal(configs), "");
}

// Their content is compared once it has been read (check_plan.h).
TEST(Fairness, OtherNamesOfDataAreSaid) {
  std::vector<NamedConfig> configs = two();
  configs[1].config.data.validation = {"other.txt"};
  configs[1].config.tokenizer.model = "other.model";
  const std::vector<std::string> notes = check_fairness(configs);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0], "tokenizer.model differs:  (a) and other.model (b).");
  EXPECT_EQ(notes[1], "data.validation differs: [] (a) and [\"other.txt\"] (b).");
}

TEST(Fairness, OtherBudgetsAndTrainingAreSaid) {
  std::vector<NamedConfig> configs = two();
  configs.push_back({.name = "c", .config = {}});
  configs[1].config.train.steps = 2000;
  configs[1].config.train.learning_rate = 0.5;
  const std::vector<std::string> notes = check_fairness(configs);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[0], "The runs are not trained on equally many tokens: 2.05 M tokens (a, c) and 4.10 M tokens (b).");
  EXPECT_EQ(notes[1], "train.steps differs: 1000 (a, c) and 2000 (b).");
  EXPECT_EQ(notes[2], "train.learning_rate differs: 0.001 (a, c) and 0.5 (b).");
}

TEST(Fairness, NothingIsSaidOfKeysThatAreExpectedToDiffer) {
  std::vector<NamedConfig> configs = two();
  configs[1].config.train.learning_rate = 0.5;
  configs[1].config.train.clip_norm = 0.5;
  const std::vector<std::string> notes = check_fairness(configs, {"train.learning_rate"});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("train.clip_norm differs")) << notes[0];
}

TEST(Fairness, NamesMustBeFoldersOfTheirOwn) {
  EXPECT_NE(refusal({}).find("at least one"), std::string::npos);
  std::vector<NamedConfig> configs = two();
  for (const char* name : {"", ".", "..", "a/b", "../up", "report.html", "a"}) {
    configs[1].name = name;
    EXPECT_NE(refusal(configs), "") << name;
  }
}

TEST(FirstDifference, IgnoresWhatARunFillsInByItself) {
  config::Config here, there;
  there.train.precision = config::Precision::bf16;
  there.train.threads = 2;
  there.train.checkpoint_every = 10;
  EXPECT_EQ(first_difference(there, here), "");
  here.train.precision = config::Precision::fp32;
  EXPECT_EQ(first_difference(there, here), "train.precision is bf16 there, fp32 here");
  here = {};
  here.model.attention.experts = {"o"};
  EXPECT_EQ(first_difference(there, here), "model.attention.experts is [\"v\", \"o\"] there, [\"o\"] here");
}

}  // namespace fairness_test
}  // namespace headroom::compare
