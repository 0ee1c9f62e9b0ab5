// "Did you mean ...?"
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/field.h"

namespace headroom::config::detail {

// Insertions, deletions, replacements and swaps of neighbours that lead from one word to the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The most similar candidate, "" when none is similar.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

// For an unknown key in the table with the dotted name `table` ("" for the top): the dotted name of the same key in
// another table, of a similar one in this table, of a similar one elsewhere, or "".
std::string nearest_key(const Fields& all, const std::string& table, std::string_view wrong);

}  // namespace headroom::config::detail
