// TOML text to values, with suspicion.
#pragma once

#include <toml++/toml.h>

#include <string_view>

namespace headroom::config::detail {

// Throws MisuseError "<origin>:<line>: not valid TOML: ...", for text that would be too deep as well.
toml::table parse_toml(std::string_view text, std::string_view origin);

}  // namespace headroom::config::detail
