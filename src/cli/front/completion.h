// What shells complete, and the manual page: made from the commands as the parser knows them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "command_tree.h"

namespace headroom::cli {

// A script for "bash", "zsh" or "fish". `keys` are those of a config, for what takes "KEY=...". Recipes' names are
// asked for when they are completed.
std::string completion_script(const std::vector<CommandText>& commands, const std::vector<std::string>& keys,
                              std::string_view shell);

// headroom(1), for man.
std::string manual_page(const std::vector<CommandText>& commands, std::string_view version);

}  // namespace headroom::cli
