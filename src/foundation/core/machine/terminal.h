// What is known about the terminal that stderr writes to.
#pragma once

#include <cstddef>
#include <string_view>

namespace headroom::detail {

bool stderr_is_terminal();                         // and one that understands "erase the line"
bool terminal_shows_blocks();                      // the locale does not rule out UTF-8
std::size_t terminal_width();                      // columns
std::size_t display_width(std::string_view text);  // columns of UTF-8 text without wide or combining characters
std::string_view first_columns(std::string_view text, std::size_t columns);

}  // namespace headroom::detail
