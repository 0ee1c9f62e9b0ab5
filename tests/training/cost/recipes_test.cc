// Shipped recipes repeat nothing, and translation runs save every epoch. tests/recipes checks sizes and settings.
#include <gtest/gtest.h>

#include "small_model.h"
#include "training/cost/cost.h"

namespace headroom::cost::recipes_test {

std::vector<config::Recipe> shipped() {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return config::list_recipes();
}

// Returns the keys that the row or one of its sets gives.
std::vector<std::string> own_keys(const config::Config& config, const config::Recipe& recipe) {
  const std::string origin = "#" + recipe.name.substr(recipe.name.find('/') + 1) + ":";
  std::vector<std::string> keys;
  for (const auto& [key, place] : config.given) {
    if (place.find(origin) != std::string::npos) {
      keys.push_back(key);
    }
  }
  return keys;
}

// Rows do not repeat what they inherit, and have at most two bases.
TEST(Recipes, SetOnlyKeysThatDifferFromTheirBase) {
  struct Loaded {
    config::Recipe listed;
    config::Config config;
    std::map<std::string, std::string> values;
  };
  std::map<std::string, Loaded> all;
  std::map<std::filesystem::path, std::string> tops;  // by file, the row that sets nothing: what the others inherit
  for (const config::Recipe& listed : shipped()) {
    const config::Config config = recipe(listed.name);
    const auto values = config::flatten(config);
    all.emplace(listed.name, Loaded{listed, config, {values.begin(), values.end()}});
    if (listed.base.empty() && own_keys(config, listed).empty()) {
      tops.emplace(listed.file, listed.name);
    }
  }
  for (const auto& [name, own] : all) {
    const std::string base = own.listed.base.empty() ? tops[own.listed.file] : own.listed.base;
    if (base.empty() || base == name) {
      continue;
    }
    const Loaded& inherited = all.at(base);
    for (const std::string& key : own_keys(own.config, own.listed)) {
      EXPECT_FALSE(inherited.config.given.contains(key) && own.values.at(key) == inherited.values.at(key))
          << own.config.given.at(key) << ": " << key << " repeats " << base;
    }
    const std::string of_base = inherited.listed.base;
    EXPECT_TRUE(of_base.empty() || all.at(of_base).listed.base.empty()) << name << ": more than two bases in a row";
  }
}

// Returns the recipes of a folder whose names contain `part`; expects at least one.
std::map<std::string, config::Config> recipes_with(const std::string& folder, const std::string& part) {
  std::map<std::string, config::Config> found;
  for (const config::Recipe& listed : shipped()) {
    if (listed.name.starts_with(folder + "/") && listed.name.find(part) != std::string::npos) {
      found.emplace(listed.name, recipe(listed.name));
    }
  }
  EXPECT_FALSE(found.empty()) << folder << " " << part;
  return found;
}

// tests/recipes/moa.md has these recipes' tokens and epochs.
TEST(Recipes, TranslationWritesACheckpointEachEpoch) {
  for (const char* part : {"wmt14_", "table7_"}) {
    for (const auto& [name, config] : recipes_with("moa", part)) {
      const bool big = name.find("16k32e") != std::string::npos || name.find("big") != std::string::npos;
      const bool french = name.find("enfr") != std::string::npos;
      EXPECT_EQ(config.train.accumulate, big ? 64 : 32) << name;
      EXPECT_EQ(config.train.steps, (french && !big ? 50 : 100) * config.train.checkpoint_every) << name;
    }
  }
  // Only the number of tokens limits a batch: the shortest pair has one token and its end token.
  for (const char* folder : {"moa", "mgk"}) {
    for (const auto& [name, config] : recipes_with(folder, "")) {
      EXPECT_GE(2 * config.train.batch_size, config.train.batch_tokens) << name;
    }
  }
}

}  // namespace headroom::cost::recipes_test
