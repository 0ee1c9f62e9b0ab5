// Which keys a config was given, and what follows from those that it was not.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "headroom/config/config.h"

namespace headroom::config::detail {

using GivenKeys = std::set<std::string, std::less<>>;

// TOML text on top of the defaults; adds its keys, dotted, to `given`.
Config read_config(std::string_view text, std::string_view origin, GivenKeys& given);

// Of model.vocabulary_size and tokenizer.vocabulary_size the one that is given decides the other.
void decide_vocabulary(Config& config, const GivenKeys& given);

}  // namespace headroom::config::detail
