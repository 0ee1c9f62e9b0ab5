#include "tools/compare/run/plan.h"

#include <gtest/gtest.h>

#include "tools/compare/compare.h"
#include "tools/compare/run/checks.h"

namespace headroom::compare::plan_test {

TEST(Combinations, TheLastChangesFastest) {
  EXPECT_EQ(combinations({}), std::vector<Values>{{}});
  const std::vector<Values> all = combinations({{"a", {"1", "2"}}, {"b", {"x", "y"}}});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1], (Values{{"a", "1"}, {"b", "y"}}));
  EXPECT_EQ(all[2], (Values{{"a", "2"}, {"b", "x"}}));
}

TEST(Plan, FolderNamesDistinguishAnyValues) {
  CompareRequest request;
  request.configs = {{"a", {}}};
  request.variations = {{"train.sample_prompt", {"../x y", "../x/y", std::string(500, 'v')}}};
  std::set<std::string> names;
  const Plan plan = plan_comparison(request);
  for (const PlannedRun& choice : plan.models.at(0).choices) {
    EXPECT_EQ(choice.folder.parent_path(), "a");
    const std::string name = choice.folder.filename();
    EXPECT_EQ(name.find_first_of(" \"'[]"), std::string::npos) << name;
    EXPECT_LE(name.size(), 140u);
    EXPECT_TRUE(names.insert(name).second) << name;
  }
}

TEST(Describe, NamesKeysByTheirLastPartIfThatIsUnique) {
  EXPECT_EQ(describe({{"train.learning_rate", "0.01"}, {"model.n_layers", "2"}}), "learning_rate 0.01, n_layers 2");
  EXPECT_EQ(describe({{"model.attention.n_experts", "2"}, {"model.mlp.n_experts", "4"}}),
            "model.attention.n_experts 2, model.mlp.n_experts 4");
}

TEST(Plan, SpellsValuesAsAConfigDoes) {
  CompareRequest request;
  request.configs = {{"a", {}}, {"b", {}}};
  request.configs[1].config.train.seed = 7;
  request.variations = {{"train.learning_rate", {"3e-4", "1.0e-3"}}};
  request.seeds = 2;
  request.out = "out";
  const Plan plan = plan_comparison(request);
  ASSERT_EQ(plan.models.size(), 2u);
  ASSERT_EQ(plan.models[1].choices.size(), 2u);
  const PlannedRun& choice = plan.models[1].choices[0];
  EXPECT_EQ(choice.folder, "out/b/train.learning_rate=0.0003");
  EXPECT_EQ(choice.config.train.learning_rate, 3e-4);
  EXPECT_EQ(choice.config.train.seed, 7);
  const PlannedRun next = with_seed(choice, 1);
  EXPECT_EQ(next.folder, "out/b/train.learning_rate=0.0003/seed_8");
  EXPECT_EQ(next.config.train.seed, 8);
  EXPECT_EQ(next.config.train.learning_rate, 3e-4);
}

TEST(Plan, ValuesThatDependOnAnotherAreRecomputed) {
  CompareRequest request;
  request.configs = {{"a", config::Config()}};
  request.variations = {{"tokenizer.vocabulary_size", {"500", "900"}}};
  request.out = "out";
  const Plan plan = plan_sweep(request);
  EXPECT_EQ(plan.models[1].choices[0].config.model.vocabulary_size, 900);
  EXPECT_EQ(plan.models[1].choices[0].config.given.at("tokenizer.vocabulary_size"), "--vary");
}

}  // namespace headroom::compare::plan_test

namespace headroom::compare::fairness_test {

std::vector<NamedConfig> two() {
  return {{.name = "a", .config = {}}, {.name = "b", .config = {}}};
}

std::string refusal(const std::vector<NamedConfig>& configs) {
  try {
    check_names(configs);
    check_comparable(configs, "compare");
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
  EXPECT_TRUE(training_differences(configs).empty());
}

TEST(Fairness, OtherTokensAreRefused) {
  std::vector<NamedConfig> configs = two();
  configs[1].config.train.evaluate_tokens = 77;
  EXPECT_EQ(refusal(configs),
            "compare: train.evaluate_tokens differs, 0 (a) and 77 (b), so the figures cannot be compared; set it to "
            "the same value in all configs");
  configs = two();
  configs[1].config.tokenizer.kind = config::TokenizerKind::bytes;
  EXPECT_TRUE(refusal(configs).starts_with("compare: a and b have different tokenizers (sentencepiece and bytes)"));
  configs[1].config.tokenizer.model = "its.model";  // the file's content decides
  EXPECT_EQ(refusal(configs), "");
  configs = two();
  configs[1].config.tokenizer.vocabulary_size = 77;
  EXPECT_TRUE(refusal(configs).starts_with("compare: tokenizer.vocabulary_size differs, ")) << refusal(configs);
  configs = two();
  configs[1].config.data.validation = {"its.txt"};
  EXPECT_TRUE(refusal(configs).starts_with("compare: a and b have different validation data (the built-in corpus"));
}

// check_runs() compares the content after it has been read.
TEST(Fairness, OtherNamesOfDataAreReported) {
  std::vector<NamedConfig> configs = two();
  configs[1].config.data.validation = {"other.txt"};
  configs[1].config.tokenizer.model = "other.model";
  const std::vector<std::string> notes = training_differences(configs);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_EQ(notes[0], "tokenizer.model differs: \"\" (a) and other.model (b).");
  EXPECT_EQ(notes[1], "data.validation differs: [] (a) and [\"other.txt\"] (b).");
}

TEST(Fairness, OtherBudgetsAndTrainingAreReported) {
  std::vector<NamedConfig> configs = two();
  configs.push_back({.name = "c", .config = {}});
  configs[1].config.train.steps = 2000;
  configs[1].config.train.learning_rate = 0.5;
  const std::vector<std::string> notes = training_differences(configs);
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[0],
            "The runs are trained on different numbers of tokens: 2.05 M tokens (a, c) and 4.10 M tokens (b).");
  EXPECT_EQ(notes[1], "train.steps differs: 1000 (a, c) and 2000 (b).");
  EXPECT_EQ(notes[2], "train.learning_rate differs: 0.001 (a, c) and 0.5 (b).");
}

TEST(Fairness, NamesMustBeDistinctFolders) {
  EXPECT_NE(refusal({}).find("at least one"), std::string::npos);
  std::vector<NamedConfig> configs = two();
  for (const char* name : {"", ".", "..", "a/b", "../up", "report.html", "a"}) {
    configs[1].name = name;
    EXPECT_NE(refusal(configs), "") << name;
  }
}

TEST(FirstDifference, IgnoresValuesThatARunSets) {
  config::Config here, there;
  tiny::set(there, "train.precision=bf16 train.threads=2 train.checkpoint_every=10");
  there.train.teacher_sha256 = "12ab";
  EXPECT_EQ(first_difference(there, here), "");
  here.train.teacher_sha256 = "34cd";
  EXPECT_EQ(first_difference(there, here), "train.teacher_sha256 is 12ab there, 34cd here");
  here.train.teacher_sha256.clear();
  here.train.precision = config::Precision::fp32;
  EXPECT_EQ(first_difference(there, here), "train.precision is bf16 there, fp32 here");
  here = {};
  here.given = {{"data.order", "a.toml"}};
  there.data.order = config::Order::given;
  EXPECT_EQ(first_difference(there, here), "data.order is given there, shuffled here");
  there.data.order = here.data.order;
  here.model.attention.of<config::ExpertOptions>().experts = {"o"};
  EXPECT_EQ(first_difference(there, here), "model.attention.experts is [\"v\", \"o\"] there, [\"o\"] here");
}

}  // namespace headroom::compare::fairness_test
