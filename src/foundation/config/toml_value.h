// Sets fields from TOML values, with error messages, and writes values as TOML text.
#pragma once

#include <toml++/toml.h>

#include <string>
#include <string_view>

#include "headroom/config/field.h"

namespace headroom::config::detail {

inline constexpr std::string_view kAutomaticWord = "auto";  // the spelling of kAutomatic
std::string in_quotes(std::string_view text);               // on one line, with escapes
std::string spelled(double number);       // the shortest text that reads back exactly and is not an integer
std::string spelled(const Field& field);  // the current value, as TOML

// Formats a value for quotation in messages: TOML on one line, shortened.
std::string shown(const toml::node& value);

// Sets the field. Throws UserError "<prefix><dotted>: must be ..., got ...". `prefix` is the place: "train.toml:12: ".
void assign(const Field& field, const toml::node& value, const std::string& prefix, const std::string& dotted);

}  // namespace headroom::config::detail
