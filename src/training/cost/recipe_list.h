// Lists the shipped recipes, with the table rows of the papers that they reproduce.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::cost {

// paper, table, row and about come from the comments at the top of the file ("# paper: ..."); empty if missing.
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

}  // namespace headroom::cost
