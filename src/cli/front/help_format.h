// The layout of --help: descriptions in a column, wrapped at the width of the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace headroom::cli {

// Columns of the terminal on standard output; 80 if it is not a terminal.
std::size_t help_width();

// Wraps `text` at `columns`. All lines but the first begin with `indent` spaces, and the first is assumed to follow as
// many characters. Lines that begin with a space are kept as they are. A word longer than a line is not split.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

std::shared_ptr<CLI::FormatterBase> help_formatter(std::size_t columns);

}  // namespace headroom::cli
