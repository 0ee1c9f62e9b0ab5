// How --help is laid out: descriptions are in a column of their own, wrapped at the terminal's width.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace headroom::cli {

// Of standard output's terminal; 80 where it goes elsewhere.
std::size_t help_width();

// The words of `text` in lines of at most `columns`; lines but the first begin with `indent` blanks, and the first is
// taken to begin after so many. Lines of the text that begin with a blank stay as they are. A word that is longer has
// a line of its own.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent);

std::shared_ptr<CLI::FormatterBase> help_formatter(std::size_t columns);

}  // namespace headroom::cli
