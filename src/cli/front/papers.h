// Every table, figure and protocol of the five papers, and what reproduces it here: recipes, a
// command, or the reason why it cannot be reproduced. docs/papers.md is the source; the build embeds it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/json.h"

namespace headroom::cli {

struct PaperItem {
  std::string item;     // "Table 3", "Figure 2", "Section 3.5"; recipes refer to it in `table`
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
std::vector<const config::Recipe*> recipes_of(const PaperItem& item, const std::vector<config::Recipe>& all);
// Returns the backquoted texts in `how` that start with "headroom ".
std::vector<std::string> commands_of(const PaperItem& item);

// [{paper, title, items: [{item, shows, recipes, how, commands}]}]
Json papers_json(const std::vector<Paper>& papers, const std::vector<config::Recipe>& recipes);

}  // namespace headroom::cli
