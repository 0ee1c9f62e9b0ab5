// The `base` that a generated config names.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::config {

// Returns the name by which a config file in `folder` can inherit from this file or recipe: a path relative to the
// folder, so that both can be moved together, or the recipe's name. Without a folder, the path is absolute.
std::string base_name(const std::string& path_or_recipe, const std::filesystem::path& folder = {});

}  // namespace headroom::config
