// Every table, figure and protocol of the five papers, and what gives it here: recipes, a command, or why there is
// none.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"
#include "training/cost/recipe_list.h"

namespace headroom::cost {

struct PaperItem {
  std::string_view item;     // "Table 3", "Figure 2", "Section 3.5"; recipes name it in their "# table:"
  std::string_view shows;    // what stands there
  std::string_view recipes;  // patterns with * and ?, separated by blanks: those of its rows
  std::string_view how;      // commands and files in backquotes, or the reason why there are none
};

struct Paper {
  std::string_view name;        // of the command line: "switchhead"
  std::string_view short_name;  // of recipes' "# paper:": "SwitchHead"
  std::string_view title;       // with authors and year
  std::span<const PaperItem> items;
};

std::vector<Paper> papers();
// Those of one name, all of them with an empty one. Throws UserError for an unknown one.
std::vector<Paper> papers_named(std::string_view name);

// The recipes that one of the item's patterns matches, as in `all`.
std::vector<const Recipe*> recipes_of(const PaperItem& item, const std::vector<Recipe>& all);
// What is in backquotes in `how` and begins with "headroom ".
std::vector<std::string> commands_of(const PaperItem& item);

// [{paper, title, items: [{item, shows, recipes, how, commands}]}]
Json papers_json(const std::vector<Paper>& papers, const std::vector<Recipe>& recipes);
// docs/papers.md.
std::string papers_page(const std::vector<Paper>& papers);

}  // namespace headroom::cost
