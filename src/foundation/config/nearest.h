// "Did you mean ...?" for keys.
#pragma once

#include <string>
#include <string_view>

#include "headroom/config/field.h"

namespace headroom::config::detail {

// For an unknown key in the table with the dotted name `table` ("" for the top): the dotted name of the same key in
// another table, of the one that other tools call so ("lr"), of a similar one in this table, of a similar one
// elsewhere, or "".
std::string nearest_key(const Fields& all, const std::string& table, std::string_view wrong);

}  // namespace headroom::config::detail
