// The layout of --help: descriptions in a column, wrapped at the width of the terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace headroom::cli {

// Returns the width in columns of the terminal on standard output; 80 if it is not a terminal.
std::size_t help_width();

// Wraps `text` at `columns`. All lines except the first start with `indent` spaces; the first is assumed to follow as
// many characters. Keeps lines that start with a space unchanged. Does not split a word longer than a line.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

std::shared_ptr<CLI::FormatterBase> help_formatter(std::size_t columns);

}  // namespace headroom::cli
