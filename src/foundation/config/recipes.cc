// The shipped recipes: the rows of the tables in recipes/.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "foundation/core/files/folders.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "parse.h"

namespace headroom::config {
namespace {

namespace fs = std::filesystem;

// Returns the recipes in the files that wanted(folder, text) accepts; `folder` ends with a slash.
template <class Wanted>
std::vector<Recipe> recipes_in(Wanted wanted) {
  const fs::path home = fs::path(home_folder()) / "recipes";
  std::vector<Recipe> recipes;
  const auto read = [&](const fs::path& file) {
    const std::string folder = file.parent_path().lexically_relative(home).generic_string() + "/";
    const std::string content = file.extension() == ".toml" ? read_text_file(file) : "";
    if (content.empty() || !wanted(folder, content)) {
      return;
    }
    const toml::table table = detail::parse_toml(content, file.string());
    const toml::table* const rows = table["rows"].as_table();
    if (rows == nullptr) {
      return;
    }
    for (auto at = rows->cbegin(); at != rows->cend(); ++at) {
      const std::string name(at->first.str());
      const auto text = [&](std::string_view key) {
        return (*rows)[name][key].value<std::string>().value_or(table[key].value_or(std::string()));
      };
      recipes.push_back({.name = folder + name,
                         .file = file,
                         .base = text("base"),
                         .paper = text("paper"),
                         .table = text("table"),
                         .row = text("row"),
                         .about = text("about")});
    }
  };
  const std::error_code error = walk_folder(home, [&](const fs::directory_entry& entry) {
    read(entry.path());
    return true;
  });
  if (error) {
    fail("{}: cannot be listed: {}", home.string(), error.message());
  }
  std::ranges::sort(recipes, {}, &Recipe::name);
  return recipes;
}

}  // namespace

std::vector<Recipe> list_recipes() {
  return recipes_in([](const std::string&, const std::string&) { return true; });
}

std::vector<std::string> recipe_names() {
  return transformed(list_recipes(), &Recipe::name);
}

std::optional<fs::path> detail::file_of_recipe(std::string_view name) {
  const std::vector<Recipe> all = recipes_in([name](const std::string& folder, const std::string& content) {
    const std::string_view row = name.substr(std::min(folder.size(), name.size()));
    return name.starts_with(folder) && content.find(row) != std::string::npos;  // only these files are parsed
  });
  const auto found = std::ranges::find(all, name, &Recipe::name);
  return found == all.end() ? std::nullopt : std::optional(found->file);
}

}  // namespace headroom::config
