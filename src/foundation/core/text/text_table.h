// Rows of cells as lines of text.
#pragma once

#include <string>
#include <vector>

namespace headroom {

// Columns as wide as their longest cell, in characters, and two blanks apart; flush left where `left` says so, right
// where it does not or is too short; no blanks at line ends. All rows have as many cells as the first, of which there
// is one at least.
std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left);

}  // namespace headroom
