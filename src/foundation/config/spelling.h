// Values as TOML spells them.
#pragma once

#include <string>
#include <string_view>

#include "headroom/config/field.h"

namespace headroom::config::detail {

inline constexpr std::string_view kAutomaticWord = "auto";  // of a field that may be kAutomatic
std::string in_quotes(std::string_view text);               // on one line, with escapes
std::string spelled(double number);       // the fewest digits that read back exactly, and never like an integer
std::string spelled(const Field& field);  // its present value

}  // namespace headroom::config::detail
