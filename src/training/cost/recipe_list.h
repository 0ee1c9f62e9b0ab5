// The shipped configurations and the rows of the papers' tables that they reproduce.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom::cost {

// From the first lines of a recipe: "# paper: ...", "# table: ...", "# row: ...", "# about: ...". Empty without one.
struct Recipe {
  std::string name;  // "switchhead/wt103_47m": accepted for the file wherever a config is expected
  std::filesystem::path file;
  std::string paper, table, row, about;
};

// All *.toml below `folder`, by name. Throws UserError when the folder is missing or a file is unreadable.
std::vector<Recipe> list_recipes(const std::filesystem::path& folder);

// Those of home_folder()/recipes.
std::vector<Recipe> list_recipes();

}  // namespace headroom::cost
