// Short texts for tables and sentences.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace headroom::draw {

// Shortens `text` to at most `characters` >= 1 characters by replacing its middle with an ellipsis. Returns valid
// UTF-8.
std::string shorten(std::string_view text, std::size_t characters);

// Formats a number with three significant digits and a unit prefix: "763 k", "2.70 M", "5.37 G".
std::string short_number(double number);

// Formats an accuracy, a perplexity or a count without a prefix: "0.9531", "7.37", "23.14", "120.2", "1,204".
std::string plain_number(double number);

}  // namespace headroom::draw
