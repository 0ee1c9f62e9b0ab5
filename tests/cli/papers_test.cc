// Checks that the keys, recipes and files in docs/papers.md exist. tests/end_to_end/test_papers.py runs its commands.
#include "cli/front/papers.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "headroom/core/files.h"

namespace headroom::cli::papers_test {

using config::Recipe;

const std::string kSource = HEADROOM_SOURCE_DIR;

std::set<std::string> known_keys() {
  std::set<std::string> keys;
  for (const auto& [key, value] : config::flatten(config::Config())) {
    keys.insert(key);
  }
  return keys;
}

class PapersPage : public testing::Test {
 protected:
  void SetUp() override {
    setenv("HEADROOM_HOME", kSource.c_str(), 1);
    recipes_ = config::list_recipes();
  }

  // Expects that a word that looks like a recipe's name is the name of a recipe.
  void expect_recipe(const std::string& word, const std::string& line) const {
    if (std::regex_match(word, std::regex("(switchhead|moa|dcmha|mgk|small|demo|zoo|scale)/[a-z0-9_]+"))) {
      EXPECT_TRUE(std::ranges::any_of(recipes_, [&](const Recipe& r) { return r.name == word; }))
          << line << ": no recipe " << word;
    }
  }

  std::set<std::string> keys_ = known_keys();
  std::vector<Recipe> recipes_;
};

TEST_F(PapersPage, EveryRecipeNamesItsRow) {
  for (const Recipe& listed : recipes_) {
    EXPECT_FALSE(listed.paper.empty() || listed.about.empty()) << listed.name << " lacks paper or about";
    // demo, zoo, small and scale are not from papers; neighbours has one size from each paper.
    const bool of_a_table = !listed.name.starts_with("demo/") && !listed.name.starts_with("zoo/") &&
                            !listed.name.starts_with("small/") && !listed.name.starts_with("scale/") &&
                            !listed.name.starts_with("neighbours/");
    EXPECT_FALSE(of_a_table && (listed.table.empty() || listed.row.empty())) << listed.name << " lacks table or row";
  }
}

TEST_F(PapersPage, NamesOnlyExistingKeysRecipesAndFiles) {
  const std::regex quoted("`([^`]+)`"), key("(model|tokenizer|data|train|decoding)\\.[a-z_.]+"),
      file("(docs|src|tests|recipes|examples)/.*");
  for (const Paper& paper : papers()) {
    for (const PaperItem& item : paper.items) {
      EXPECT_FALSE(item.how.empty()) << paper.name << ", " << item.item;
      const std::string& how = item.how;
      for (std::sregex_iterator at(how.begin(), how.end(), quoted), end; at != end; ++at) {
        const std::string text = (*at)[1], first = text.substr(0, text.find(' '));
        if (std::regex_match(first, key)) {
          EXPECT_TRUE(keys_.contains(first)) << paper.name << ", " << item.item << ": no key " << first;
        } else if (std::regex_match(text, file)) {
          EXPECT_TRUE(std::filesystem::exists(kSource + "/" + text)) << paper.name << ", " << item.item << ": " << text;
        }
        expect_recipe(text, how);
      }
    }
  }
}

TEST_F(PapersPage, HasEveryTableAndFigure) {
  const auto items_of = [](const std::string& name) {
    std::set<std::string> items;
    const Paper paper = papers_named(name).front();
    for (const PaperItem& item : paper.items) {
      items.emplace(item.item);
    }
    return items;
  };
  for (const auto& [name, tables, figures] :
       {std::tuple("switchhead_draft", 7, 6), std::tuple("switchhead", 10, 6), std::tuple("moa", 7, 4),
        std::tuple("dcmha", 11, 8), std::tuple("mgk", 9, 14)}) {
    const std::set<std::string> items = items_of(name);
    for (int i = 1; i <= tables; ++i) {
      EXPECT_TRUE(items.contains(fmt::format("Table {}", i))) << name << " lacks Table " << i;
    }
    for (int i = 1; i <= figures; ++i) {
      EXPECT_TRUE(items.contains(fmt::format("Figure {}", i))) << name << " lacks Figure " << i;
    }
  }
  EXPECT_THROW(papers_named("attention"), UserError);
}

// Splits "3, Figure 2" into {"Table 3", "Figure 2"}.
std::vector<std::string> items_named(const std::string& tables) {
  std::vector<std::string> items;
  std::istringstream stream(tables);
  for (std::string name; std::getline(stream >> std::ws, name, ',');) {
    const bool number = name.find_first_not_of("0123456789") == std::string::npos;
    items.push_back(number ? "Table " + name : name);
  }
  return items;
}

TEST_F(PapersPage, HasEveryRecipeWhereItsRowSays) {
  const std::map<std::string, std::string> names = {{"SwitchHead", "switchhead"},
                                                    {"SwitchHead draft", "switchhead_draft"},
                                                    {"MoA", "moa"},
                                                    {"DCMHA", "dcmha"},
                                                    {"Transformer-MGK", "mgk"}};
  for (const Paper& paper : papers()) {
    for (const PaperItem& item : paper.items) {
      std::istringstream patterns(item.recipes);
      for (std::string pattern; patterns >> pattern;) {
        PaperItem alone = item;
        alone.recipes = pattern;
        EXPECT_FALSE(recipes_of(alone, recipes_).empty())
            << paper.name << ", " << item.item << ": no recipe " << pattern;
      }
    }
    for (const Recipe& recipe : recipes_) {
      const auto name_of_paper = names.find(recipe.paper);
      if (recipe.table.empty() || name_of_paper == names.end() || name_of_paper->second != paper.name) {
        continue;
      }
      for (const std::string& name : items_named(recipe.table)) {
        const bool found = std::ranges::any_of(paper.items, [&](const PaperItem& item) {
          const std::vector<const Recipe*> of = recipes_of(item, recipes_);
          return item.item == name && std::ranges::any_of(of, [&](const Recipe* r) { return r->name == recipe.name; });
        });
        EXPECT_TRUE(found) << recipe.name << " is not in the line of " << paper.name << ", " << name;
      }
    }
  }
}

TEST_F(PapersPage, EveryRowOfTheDocumentIsRead) {
  std::size_t rows = 0;
  std::istringstream page(read_text_file(kSource + "/docs/papers.md"));
  for (std::string line; std::getline(page, line);) {
    rows += line.starts_with("| ") && !line.starts_with("| |") ? 1 : 0;
  }
  std::size_t items = 0;
  for (const Paper& paper : papers()) {
    EXPECT_FALSE(paper.name.empty()) << paper.title;
    items += paper.items.size();
  }
  EXPECT_EQ(items, rows);
  EXPECT_EQ(papers().size(), 5U);
}

TEST_F(PapersPage, JsonHasRecipesAndCommandsApart) {
  const Json json = papers_json(papers_named("moa"), recipes_);
  ASSERT_EQ(json.size(), 1U);
  const Json& items = json[0]["items"];
  const auto table = std::ranges::find_if(items, [](const Json& i) { return i["item"] == "Table 7"; });
  ASSERT_NE(table, items.end());
  EXPECT_EQ((*table)["recipes"].size(), 15U);
  EXPECT_EQ((*table)["commands"].size(), 1U);
}

}  // namespace headroom::cli::papers_test
