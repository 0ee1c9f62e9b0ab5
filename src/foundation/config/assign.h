// One TOML value into one field, and everything that may be wrong with it.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "headroom/config/field.h"

namespace headroom::config::detail {

// "an integer of at least 1", "one of dense, experts, routed_heads".
std::string expected(const Field& field);

// A value as the message shows it: TOML on one line, shortened.
std::string shown(const toml::node& value);

// Throws UserError "<prefix><dotted>: must be ..., got ...". `prefix` says where: "train.toml:12: ".
void assign(const Field& field, const toml::node& value, const std::string& prefix, const std::string& dotted);

}  // namespace headroom::config::detail
