// Every shipped recipe loads, says which row it stands for, and has the size that the row has.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "headroom/core/error.h"
#include "headroom/cost/cost.h"
#include "headroom/cost/recipe_list.h"
#include "recipes.h"

namespace headroom::cost {
namespace {

namespace fs = std::filesystem;

const std::string kFolder = std::string(HEADROOM_SOURCE_DIR) + "/recipes";

// Exact sizes of the papers' models. Those with relative positions and one scale a layer (Transformer-XL) are
// printed with an unused scalar a layer more: `unused` of them are taken off here.
struct Size {
  std::int64_t parameters, unused = 0;
};
const std::map<std::string, Size> kSizes = {
    {"switchhead/wt103_47m_dense_h10", {47'260'136, 16}},
    {"switchhead/wt103_47m_dense_h2", {47'260'136, 16}},
    {"switchhead/wt103_47m", {47'247'416}},
    {"switchhead/c4_47m", {47'247'416}},
    {"switchhead/wt103_262m_dense_h16", {262'479'968, 18}},
    {"switchhead/c4_262m_dense_h4", {262'479'968, 18}},
    {"switchhead/wt103_262m_dense_h2", {262'479'968, 18}},
    {"switchhead/c4_262m", {262'370'744}},
    {"switchhead/wt103_262m", {262'480'598}},
    {"switchhead/enwik8_41m_dense_h8", {41'234'721, 12}},
    {"switchhead/enwik8_41m_dense_h2", {41'234'721, 12}},
    {"switchhead/enwik8_41m", {41'161'389}},
    {"switchhead/wt103_45m_rope_dense_h10", {44'544'264}},
    {"switchhead/wt103_45m_rope_dense_h2", {44'544'264}},
    {"switchhead/wt103_45m_rope", {44'505'336}},
    {"switchhead/wt103_244m_rope_dense_h16", {243'568'700}},
    {"switchhead/wt103_244m_rope_dense_h2", {243'568'700}},
    {"switchhead/wt103_243m_rope", {243'347'984}},
    {"switchhead/wt103_47m_switchall", {46'891'128}},
    {"switchhead/c4_47m_switchall", {46'891'128}},
    {"switchhead/wt103_259m_switchall", {259'475'264}},
    {"switchhead/wt103_272m_switchall", {272'451'392}},
    {"switchhead/wt103_47m_moa_h2", {47'260'328}},
    {"switchhead/wt103_47m_moa_h4", {47'260'328}},
    {"switchhead/wt103_47m_moa_h6", {47'260'328}},
    {"switchhead/wt103_47m_moa_h8", {47'260'328}},
    {"switchhead/wt103_262m_moa_h2", {262'443'662}},  // width found by match, not printed
    {"switchhead/wt103_262m_moa_h4", {262'443'662}},
    {"switchhead/wt103_262m_moa_h8", {262'443'662}},
    {"switchhead/wt103_262m_moa_h12", {262'443'662}},
    {"switchhead/c4_63m_macs", {63'081'400}},
    {"switchhead/c4_376m_macs", {376'206'776}},
    {"switchhead/c4_54m_rope_macs", {54'380'152}},
    {"switchhead/table1_none", {47'260'136, 16}},
    {"switchhead/table1_v", {47'247'176}},
    {"switchhead/table1_k", {47'247'176}},
    {"switchhead/table1_q", {47'247'176}},
    {"switchhead/table1_o", {47'247'176}},
    {"switchhead/table1_vo", {47'247'416}},
    {"switchhead/table1_vq", {47'247'416}},
    {"switchhead/table1_ko", {47'247'416}},
    {"switchhead/table1_kq", {47'247'416}},
    {"switchhead/table1_vk", {47'181'496}},
    {"switchhead/table1_qo", {47'181'496}},
    {"switchhead/table1_vko", {47'234'792}},
    {"switchhead/table1_vqo", {47'234'792}},
    {"switchhead/table1_kqo", {47'234'792}},
    {"switchhead/table1_vkq", {47'234'792}},
    {"switchhead/table1_vkqo", {47'247'096}},
};

TEST(Recipes, EveryOneLoadsAndNamesItsRow) {
  for (const Recipe& listed : list_recipes(kFolder)) {
    EXPECT_NO_THROW(recipe(listed.name)) << listed.name;
    EXPECT_FALSE(listed.paper.empty() || listed.about.empty()) << listed.name << " lacks # paper: or # about:";
    const bool of_a_table = !listed.name.starts_with("demo/");  // the demo's models are our own
    EXPECT_FALSE(of_a_table && (listed.table.empty() || listed.row.empty()))
        << listed.name << " lacks # table: or # row:";
  }
}

TEST(Recipes, SwitchHeadModelsHaveThePapersSizes) {
  std::size_t seen = 0;
  for (const Recipe& listed : list_recipes(kFolder)) {
    if (listed.name.starts_with("switchhead/")) {
      ASSERT_TRUE(kSizes.contains(listed.name)) << listed.name << " has no size to compare with";
      const auto& [parameters, unused] = kSizes.at(listed.name);
      EXPECT_EQ(count_parameters(recipe(listed.name).model), parameters - unused) << listed.name;
      ++seen;
    }
  }
  EXPECT_EQ(seen, kSizes.size());
}

TEST(RecipeList, ReadsTheHeaderAndNothingBehindIt) {
  const fs::path folder = fs::path(testing::TempDir()) / "headroom_recipe_list";
  fs::remove_all(folder);
  fs::create_directories(folder / "b");
  std::ofstream(folder / "b" / "one.toml") << "# paper: P\r\n# table: 3\n#\n# row: R=1, k=2\n# about: A\n\n# row: no\n";
  std::ofstream(folder / "a.toml") << "[model]\n# paper: no\n";
  std::ofstream(folder / "notes.txt") << "# paper: no\n";
  const std::vector<Recipe> recipes = list_recipes(folder);
  ASSERT_EQ(recipes.size(), 2u);
  EXPECT_EQ(recipes[0].name, "a");
  EXPECT_EQ(recipes[0].paper, "");
  EXPECT_EQ(recipes[1].name, "b/one");
  EXPECT_EQ(recipes[1].file, folder / "b" / "one.toml");
  EXPECT_EQ(recipes[1].paper, "P");
  EXPECT_EQ(recipes[1].table, "3");
  EXPECT_EQ(recipes[1].row, "R=1, k=2");
  EXPECT_EQ(recipes[1].about, "A");
  fs::remove_all(folder);
  EXPECT_THROW(list_recipes(folder), MisuseError);
}

}  // namespace
}  // namespace headroom::cost
