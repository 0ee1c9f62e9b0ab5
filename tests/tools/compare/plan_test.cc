#include "tools/compare/run/plan.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"

namespace headroom::compare {
namespace plan_test {

TEST(Combinations, TheLastChangesFastest) {
  EXPECT_EQ(combinations({}), std::vector<Values>{{}});
  const std::vector<Values> all = combinations({{"a", {"1", "2"}}, {"b", {"x", "y"}}});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[1], (Values{{"a", "1"}, {"b", "y"}}));
  EXPECT_EQ(all[2], (Values{{"a", "2"}, {"b", "x"}}));
}

TEST(FolderName, DoesNotDependOnTheOrderOfKeys) {
  EXPECT_EQ(folder_name({}), "");
  EXPECT_EQ(folder_name({{"b", "2"}, {"a", "1e-05"}}), "a=1e-05,b=2");
  EXPECT_EQ(folder_name({{"a", "1e-05"}, {"b", "2"}}), "a=1e-05,b=2");
}

TEST(FolderName, TellsAnyValuesApart) {
  const std::string one = folder_name({{"data.train", "[\"../x y\"]"}}),
                    other = folder_name({{"data.train", "[\"../x/y\"]"}});
  EXPECT_NE(one, other);
  for (const std::string& name : {one, other, folder_name({{"a", std::string(500, 'v')}})}) {
    EXPECT_EQ(name.find_first_of("/ \"'[]"), std::string::npos) << name;
    EXPECT_LE(name.size(), 140u);
  }
}

TEST(Describe, NamesKeysByTheirLastPartWhereThatIsEnough) {
  EXPECT_EQ(describe({{"train.learning_rate", "0.01"}, {"model.n_layers", "2"}}), "learning_rate 0.01, n_layers 2");
  EXPECT_EQ(describe({{"model.attention.n_experts", "2"}, {"model.mlp.n_experts", "4"}}),
            "model.attention.n_experts 2, model.mlp.n_experts 4");
}

TEST(Plan, SpellsValuesAsAConfigDoes) {
  CompareRequest request;
  request.configs = {{"a", {}}, {"b", {}}};
  request.configs[1].config.train.seed = 7;
  request.tune = {{"train.learning_rate", {"3e-4", "1.0e-3"}}};
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

TEST(Plan, WhatFollowsFromAValueIsDecidedAnew) {
  SweepRequest request;
  request.config = {"a", config::Config()};
  request.vary = {{"tokenizer.vocabulary_size", {"500", "900"}}};
  request.out = "out";
  const Plan plan = plan_sweep(request);
  EXPECT_EQ(plan.models[1].choices[0].config.model.vocabulary_size, 900);
  EXPECT_EQ(plan.models[1].choices[0].config.given.at("tokenizer.vocabulary_size"), "--vary");
}

}  // namespace plan_test
}  // namespace headroom::compare
