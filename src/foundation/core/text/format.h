// Formats numbers, durations, tables and binary data as text, parses numbers and durations, and makes untrusted text
// (keys, values, file names, arguments) safe to print.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

std::string format_duration(double seconds);                      // "45 s", "3 min 20 s", "2 h 05 min"
std::string format_count(double number);                          // "512", "47.3 k", "170.4 M", "5.4 G"
std::string format_bytes(double bytes);                           // "12.3 MiB"
std::string counted(std::int64_t count, std::string_view thing);  // "1 step", "2 steps"
// Formats a number with `digits` decimals. A number that rounds to zero has no sign: "0.00", never "-0.00".
std::string format_decimal(double number, int digits);

// Formats a table with columns separated by two spaces, without trailing spaces. Columns are right-aligned, except that
// column i is left-aligned if left[i]. There must be at least one row, and all rows must have the same number of cells,
// at least one.
std::string text_table(const std::vector<std::vector<std::string>>& rows, const std::vector<bool>& left);

// Returns the last line that is not empty, without its line end; "" if there is none.
std::string last_line(std::string_view text);

// Encodes Base64 (RFC 4648) with padding.
std::string to_base64(std::string_view bytes);

// Parses the whole of `text` as a number ("0.1", "-3", "1e-4"); returns nullopt if that fails.
template <class T = double>
std::optional<T> as_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Parses the whole of `text` as an integer of at least 0; returns nullopt if that fails.
inline std::optional<std::int64_t> whole_number(std::string_view text) {
  const auto number = as_number<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

// Parses a duration ("90s", "30m", "2h", "1.5h", "1d") to seconds. Throws UserError "<what>: ..." for other text, and
// for durations that are not above 0 or exceed 1000 days.
double parse_duration(std::string_view text, std::string_view what);

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
