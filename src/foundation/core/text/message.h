// What error messages need: untrusted text (keys, values, file names, arguments) made safe to print, and "did you
// mean".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// `text` on one line without anything that a terminal acts on: control characters, invalid UTF-8, line and paragraph
// separators and bidirectional marks are escaped as \n, \t, \x1b, \u{202e}. Text longer than `longest` bytes is cut
// between characters and ends with "...". Applying it twice changes nothing more.
std::string printable(std::string_view text, std::size_t longest = 120);

// `text` of any length for a terminal: control characters other than line ends and tabs are escaped.
std::string harmless(std::string_view text);

// The most similar of `candidates` by edit distance (insertions, deletions, substitutions, transpositions), or "" if
// none differs in few letters only.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

}  // namespace headroom
