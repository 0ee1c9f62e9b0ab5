// TOML text to values, with suspicion.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string_view>

#include "headroom/config/config.h"

namespace headroom::config::detail {

// Throws UserError "<origin>:<line>: not valid TOML: ...", for text that would be too deep as well.
toml::table parse_toml(std::string_view text, std::string_view origin);

// The values of a file over what `config` has; notes their places in config.given. `folder`: where names of files in it
// are relative to; empty: they stay as they are.
void read_onto(Config& config, const toml::table& values, std::string_view origin, const std::filesystem::path& folder);

// A field that names files, or any other: the names, if they are relative, as seen from `folder`.
void make_absolute(const Field& field, const std::filesystem::path& folder);

}  // namespace headroom::config::detail
