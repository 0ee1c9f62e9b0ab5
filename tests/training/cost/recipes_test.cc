// Every shipped recipe loads, names the row that it reproduces, and has that row's size.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "headroom/config/attention/routing_options.h"
#include "small_model.h"
#include "training/cost/cost.h"
#include "training/cost/papers/figures.h"

namespace headroom::cost {
namespace recipes_test {

// Exact sizes of the papers' models. The printed sizes of models with relative positions and one scale per layer
// (Transformer-XL) include an unused scalar per layer: `unused` scalars are subtracted here. The widths of MoA 262M, of
// gated heads, of the 307M model and of heads with a shared selection were found by match, not printed.
struct Size {
  std::int64_t parameters, unused = 0;
};
const std::vector<std::pair<Size, std::vector<const char*>>> kSizes = {
    {{47'260'136, 16}, {"wt103_47m_dense_h10", "wt103_47m_dense_h2", "table1_none"}},
    {{47'247'416}, {"wt103_47m", "c4_47m", "table1_vo", "table1_vq", "table1_ko", "table1_kq"}},
    {{262'479'968, 18}, {"wt103_262m_dense_h16", "c4_262m_dense_h4", "wt103_262m_dense_h2"}},
    {{262'370'744}, {"c4_262m"}},
    {{262'480'598}, {"wt103_262m"}},
    {{41'234'721, 12}, {"enwik8_41m_dense_h8", "enwik8_41m_dense_h2"}},
    {{41'161'389}, {"enwik8_41m"}},
    {{44'544'264},
     {"wt103_45m_rope_dense_h10", "wt103_45m_rope_dense_h2", "c4_45m_rope_dense_h10", "c4_45m_rope_dense_h2"}},
    {{44'505'336}, {"wt103_45m_rope", "c4_45m_rope"}},
    {{243'568'700},
     {"wt103_244m_rope_dense_h16", "wt103_244m_rope_dense_h2", "c4_244m_rope_dense_h16", "c4_244m_rope_dense_h2"}},
    {{243'347'984}, {"wt103_243m_rope", "c4_243m_rope"}},
    {{46'891'128}, {"wt103_47m_switchall", "c4_47m_switchall"}},
    {{259'475'264}, {"wt103_259m_switchall"}},
    {{272'451'392}, {"wt103_272m_switchall", "c4_272m_switchall"}},
    {{47'260'328},
     {"wt103_47m_moa_h2", "wt103_47m_moa_h4", "wt103_47m_moa_h6", "wt103_47m_moa_h8", "wt103_47m_moa_h2_softmax",
      "wt103_47m_moa_h4_softmax", "wt103_47m_moa_h6_softmax", "wt103_47m_moa_h8_softmax"}},
    {{262'443'662},
     {"wt103_262m_moa_h2", "wt103_262m_moa_h4", "wt103_262m_moa_h8", "wt103_262m_moa_h12", "wt103_262m_moa_h2_softmax",
      "wt103_262m_moa_h4_softmax", "wt103_262m_moa_h8_softmax", "wt103_262m_moa_h12_softmax"}},
    {{47'247'304}, {"wt103_47m_gated_heads", "c4_47m_gated_heads"}},
    {{63'081'400}, {"c4_63m_macs"}},
    {{376'206'776}, {"c4_376m_macs"}},
    {{54'380'152}, {"c4_54m_rope_macs"}},
    {{307'048'976}, {"c4_307m_rope_macs"}},
    {{47'247'496}, {"c4_47m_shared"}},
    {{262'479'950}, {"c4_262m_shared"}},
    {{893'706}, {"listops_six_layers_dense_h8", "listops_six_layers_dense_h2"}},
    {{892'188}, {"listops_six_layers_h2"}},
    {{47'247'176}, {"table1_v", "table1_k", "table1_q", "table1_o"}},
    {{47'181'496}, {"table1_vk", "table1_qo"}},
    {{47'234'792}, {"table1_vko", "table1_vqo", "table1_kqo", "table1_vkq"}},
    {{47'247'096}, {"table1_vkqo"}},
};

std::vector<config::Recipe> shipped() {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return config::list_recipes();
}

// The keys that the row itself or one of its sets gives.
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

// Rows that neither repeat what they inherit nor lead through more than two bases.
TEST(Recipes, SetOnlyKeysThatDifferFromTheirBase) {
  const auto values_of = [](const config::Config& config) {
    const auto values = config::flatten(config);
    return std::map<std::string, std::string>(values.begin(), values.end());
  };
  std::map<std::string, config::Recipe> all;
  std::map<std::filesystem::path, std::string> tops;  // by file, the row that sets nothing: what the others inherit
  for (const config::Recipe& listed : shipped()) {
    all.emplace(listed.name, listed);
    if (listed.base.empty() && own_keys(recipe(listed.name), listed).empty()) {
      tops.emplace(listed.file, listed.name);
    }
  }
  for (const auto& [name, listed] : all) {
    const std::string base = listed.base.empty() ? tops[listed.file] : listed.base;
    if (base.empty() || base == name) {
      continue;
    }
    const config::Config config = recipe(name), inherited = recipe(base);
    const auto values = values_of(config), old = values_of(inherited);
    for (const std::string& key : own_keys(config, listed)) {
      EXPECT_FALSE(inherited.given.contains(key) && values.at(key) == old.at(key))
          << config.given.at(key) << ": " << key << " repeats " << base;
    }
    const std::string of_base = all.at(base).base;
    EXPECT_TRUE(of_base.empty() || all.at(of_base).base.empty()) << name << ": more than two bases in a row";
  }
}

// The recipes of a folder whose names contain `part`; at least one.
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

TEST(Recipes, SwitchHeadModelsHaveThePapersSizes) {
  std::size_t seen = 0;
  for (const auto& [size, names] : kSizes) {
    for (const std::string name : names) {
      EXPECT_EQ(count_parameters(recipe("switchhead/" + name).model), size.parameters - size.unused) << name;
      ++seen;
    }
  }
  EXPECT_EQ(seen, recipes_with("switchhead", "").size()) << "a recipe has no size to compare with";
}

// Sizes of other papers' models that tests/recipes rounds further or does not cover.
const std::map<std::string, const char*> kRounded = {
    {"moa/wmt14_ende_8k32e128d", "122.3M"},  // printed as 123M
    {"moa/wmt14_enfr_big_dense", "222M"},    // of Ott et al.
    {"dcmha/405m_dcformer_pp", "419.5M"},
    {"dcmha/834m_dcformer_pp", "852.5M"},
    {"dcmha/1b4_dcformer_pp", "1472.1M"},
    {"dcmha/2b8_dcformer_pp", "2849.6M"},
    {"dcmha/6b9_dcformer_pp", "6974.0M"},
    {"dcmha/2b8_dcpythia", "2829.5M"},
    {"dcmha/6b9_dcpythia", "6941.9M"},
    {"dcmha/6b9_dcformer_pp_local_3_1", "6974.0M"},
    {"dcmha/6b9_dcformer_pp_local_7_1", "6974.0M"},
    {"mgk/wt103_small_softmax_h8", "44.02M"},
    {"mgk/wt103_small_mgk_h8", "44.35M"},
    {"mgk/wt103_small_mgk_h4", "43.66M"},
    {"mgk/wt103_medium_softmax_h8", "89.83M"},
};

TEST(Recipes, ModelsOfTheOtherPapersHaveTheirSizes) {
  for (const auto& [name, printed] : kRounded) {
    const std::int64_t parameters = count_parameters(recipe(name).model);
    EXPECT_TRUE(rounds_to(parameters, printed)) << name << ": " << parameters << " is not " << printed;
  }
}

TEST(Recipes, SoftmaxRoutersHaveTheirLosses) {
  for (const auto& [name, config] : recipes_with("switchhead", "_moa_")) {
    const bool softmax = name.ends_with("_softmax");
    const config::AttentionOptions& a = config.model.attention;
    EXPECT_EQ(a.of<config::RoutingOptions>().gate, softmax ? config::Gate::softmax : config::Gate::sigmoid) << name;
    EXPECT_EQ(a.of<config::RoutedHeadOptions>().switch_coefficient, 0.0) << name;
    EXPECT_EQ(a.of<config::RoutedHeadOptions>().switch_slots_coefficient, softmax ? 0.01 : 0.0) << name;
    EXPECT_EQ(a.of<config::RoutedHeadOptions>().z_coefficient, softmax ? 0.001 : 0.0) << name;
  }
}

// tests/recipes/moa.md has the tokens and the epochs of these recipes.
TEST(Recipes, TranslationWritesACheckpointEachEpoch) {
  for (const char* part : {"wmt14_", "table7_"}) {
    for (const auto& [name, config] : recipes_with("moa", part)) {
      const bool big = name.find("16k32e") != std::string::npos || name.find("big") != std::string::npos;
      const bool french = name.find("enfr") != std::string::npos;
      EXPECT_EQ(config.train.accumulate, big ? 64 : 32) << name;
      EXPECT_EQ(config.train.steps, (french && !big ? 50 : 100) * config.train.checkpoint_every) << name;
    }
  }
  for (const auto& [name, config] : recipes_with("mgk", "iwslt14_")) {
    EXPECT_EQ(config.train.batch_tokens, 4096) << name;
  }
  // Only the number of tokens limits a batch: the shortest pair has one token and its end token.
  for (const char* folder : {"moa", "mgk"}) {
    for (const auto& [name, config] : recipes_with(folder, "")) {
      EXPECT_GE(2 * config.train.batch_size, config.train.batch_tokens) << name;
    }
  }
}

// SwitchHead's rule is for its own models; the others are initialised as in their papers' code.
TEST(Recipes, ModelsStartAsTheirPapersDo) {
  using config::Initialisation;
  const auto expect = [](const char* folder, const char* part, Initialisation rule) {
    for (const auto& [name, config] : recipes_with(folder, part)) {
      EXPECT_EQ(config.model.initialisation, rule) << name;
    }
  };
  expect("switchhead", "", Initialisation::scaled);
  expect("moa", "", Initialisation::glorot);
  expect("mgk", "iwslt14_", Initialisation::glorot);
  expect("mgk", "wt103_", Initialisation::normal);
  expect("mgk", "lra_", Initialisation::torch);
  expect("mgk", "table5_", Initialisation::torch);
  for (const auto& [name, config] : recipes_with("dcmha", "")) {
    const bool pictures = config.model.kind == config::ModelKind::vision;
    const bool pythia = name.find("pythia") != std::string::npos;
    EXPECT_EQ(config.model.initialisation, pictures ? Initialisation::glorot
                                           : pythia ? Initialisation::pythia
                                                    : Initialisation::normal)
        << name;
  }
  for (const char* part : {"lra_", "table5_"}) {
    for (const auto& [name, config] : recipes_with("mgk", part)) {
      EXPECT_EQ(config.model.embedding_std, 0.02) << name;
    }
  }
}

}  // namespace recipes_test
}  // namespace headroom::cost
