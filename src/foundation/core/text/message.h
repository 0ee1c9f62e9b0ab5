// Helpers for error messages: make untrusted text (keys, values, file names, arguments) safe to print, and find
// suggestions for misspelt names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

// Returns `text` on one line, without anything that a terminal interprets: control characters, invalid UTF-8, line and
// paragraph separators and bidirectional marks are escaped as \n, \t, \x1b, \u{202e}. Text longer than `longest` bytes
// is cut between characters and ends with "...". Idempotent.
std::string printable(std::string_view text, std::size_t longest = 120);

// Returns `text` of any length, safe for a terminal: control characters other than line ends and tabs are escaped.
std::string harmless(std::string_view text);

// Returns the candidate with the smallest edit distance (insertions, deletions, substitutions, transpositions) to
// `wrong`, or "" if none is close.
std::string nearest(std::string_view wrong, const std::vector<std::string>& candidates);

// Returns the end of a message about a missing file: a remedy if `name` is an address such as "https://...", else "".
std::string download_hint(std::string_view name);

}  // namespace headroom
