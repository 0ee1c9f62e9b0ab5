// Keys that people call by other names.
#pragma once

#include <string>
#include <string_view>

namespace headroom::config {

// The dotted name of the key that `wrong`, a name without tables, seems to mean ("lr": train.learning_rate), or "".
std::string suggest_key(std::string_view wrong);

}  // namespace headroom::config
