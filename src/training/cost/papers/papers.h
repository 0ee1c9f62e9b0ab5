// The shipped recipes, and every table, figure and protocol of the five papers, and what reproduces it here: recipes, a
// command, or the reason why it cannot be reproduced. docs/papers.md is the source; the build embeds it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/core/json.h"

namespace headroom::cost {

// A recipe, with the table row that it reproduces. paper, table, row and about come from the comments at the top of the
// file ("# paper: ..."); empty if missing.
struct Recipe {
  std::string name;  // "switchhead/wt103_47m"; accepted wherever a config file is
  std::filesystem::path file;
  std::string paper, table, row, about;
};

// Returns all *.toml files below `folder`, sorted by name. Throws UserError if the folder is missing or a file is
// unreadable.
std::vector<Recipe> list_recipes(const std::filesystem::path& folder);

// Returns the recipes in home_folder()/recipes.
std::vector<Recipe> list_recipes();

struct PaperItem {
  std::string item;     // "Table 3", "Figure 2", "Section 3.5"; recipes refer to it in "# table:"
  std::string shows;    // its content
  std::string recipes;  // that reproduce its rows: patterns with * and ?, separated by spaces
  std::string how;      // commands and files in backquotes, or the reason why there are none
};

struct Paper {
  std::string name;   // on the command line: "switchhead"
  std::string title;  // with authors and year
  std::vector<PaperItem> items;
};

std::vector<Paper> papers();
// Returns the paper of that name, or all papers if it is empty. Throws UserError for an unknown name.
std::vector<Paper> papers_named(std::string_view name);

// Returns the recipes that match one of the item's patterns, in the order of `all`.
std::vector<const Recipe*> recipes_of(const PaperItem& item, const std::vector<Recipe>& all);
// Returns the backquoted texts in `how` that start with "headroom ".
std::vector<std::string> commands_of(const PaperItem& item);

// [{paper, title, items: [{item, shows, recipes, how, commands}]}]
Json papers_json(const std::vector<Paper>& papers, const std::vector<Recipe>& recipes);

}  // namespace headroom::cost
