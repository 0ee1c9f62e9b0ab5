#include "recipe_list.h"

#include <algorithm>
#include <string_view>
#include <system_error>
#include <utility>

#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"

namespace headroom::cost {

namespace fs = std::filesystem;

namespace {

// Reads the "# key: value" comments at the top of the file.
void read_header(std::string_view text, Recipe& recipe) {
  const std::pair<std::string_view, std::string*> keys[] = {{"# paper: ", &recipe.paper},
                                                            {"# table: ", &recipe.table},
                                                            {"# row: ", &recipe.row},
                                                            {"# about: ", &recipe.about}};
  while (text.starts_with('#')) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    for (const auto& [key, value] : keys) {
      if (line.starts_with(key) && value->empty()) {
        *value = line.substr(key.size());
      }
    }
  }
}

}  // namespace

std::vector<Recipe> list_recipes(const fs::path& folder) {
  std::vector<Recipe> recipes;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() != ".toml" || !entry->is_regular_file()) {
      continue;
    }
    Recipe recipe{.name = entry->path().lexically_relative(folder).replace_extension().generic_string(),
                  .file = entry->path()};
    read_header(read_text_file(recipe.file), recipe);
    recipes.push_back(std::move(recipe));
  }
  if (error) {
    user_error("recipes: cannot list {}: {}", folder.string(), error.message());
  }
  std::ranges::sort(recipes, [](const Recipe& a, const Recipe& b) { return a.name < b.name; });
  return recipes;
}

std::vector<Recipe> list_recipes() {
  return list_recipes(fs::path(home_folder()) / "recipes");
}

}  // namespace headroom::cost
