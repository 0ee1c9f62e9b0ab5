#include <algorithm>
#include <filesystem>

#include "given.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/nearest.h"
#include "headroom/core/system.h"

namespace headroom::config {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLargestConfig = std::size_t{1} << 20;  // bytes

// What a recipe would be called: "recipes/demo/x.toml" is meant as "demo/x".
std::string as_recipe_name(std::string name) {
  if (const std::size_t folder = name.rfind("recipes/"); folder != std::string::npos) {
    name = name.substr(folder + 8);
  }
  return name.ends_with(".toml") ? name.substr(0, name.size() - 5) : name;
}

// The recipe that a wrong name may mean: similar as a whole, or alike after the folder.
std::string nearest_recipe(const std::string& wrong, const std::vector<std::string>& names) {
  std::string close = nearest(as_recipe_name(wrong), names);
  for (const std::string& name : names) {
    if (close.empty() && name.substr(name.find('/') + 1) == as_recipe_name(wrong)) {
      close = name;
    }
  }
  return close;
}

fs::path find_config(const std::string& path_or_recipe) {
  std::error_code error;
  if (fs::is_regular_file(path_or_recipe, error)) {
    return path_or_recipe;
  }
  std::vector<std::string> names;
  try {
    names = recipe_names();
  } catch (const Error&) {  // without recipes it can only be a file
  }
  if (std::find(names.begin(), names.end(), path_or_recipe) != names.end()) {
    return fs::path(home_folder()) / "recipes" / (path_or_recipe + ".toml");
  }
  const std::string close = nearest_recipe(path_or_recipe, names);
  misuse("{}: {} a recipe's name{}", path_or_recipe,
         fs::is_directory(path_or_recipe, error) ? "is a folder, neither a TOML file nor" : "is neither a file nor",
         close.empty() ? "" : ", did you mean " + close + "?");
}

}  // namespace

std::vector<std::string> recipe_names() {
  const fs::path folder = fs::path(home_folder()) / "recipes";
  std::vector<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".toml") {
      names.push_back(entry->path().lexically_relative(folder).replace_extension().generic_string());
    }
  }
  if (error) {
    fail("{}: cannot be listed: {}", folder.string(), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Config load_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides) {
  const fs::path path = find_config(path_or_recipe);
  detail::GivenKeys given;
  Config config = detail::read_config(read_text_file(path, kLargestConfig), path.string(), given);
  for (const std::string& assignment : overrides) {
    given.insert(set_key(config, assignment));
  }
  detail::decide_vocabulary(config, given);
  check(config, path.string());
  return config;
}

}  // namespace headroom::config
