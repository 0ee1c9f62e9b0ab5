// Formats progress as pure functions of its state, as a bar for terminals or a plain line, and queries the terminal
// that stderr writes to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom::detail {

struct ProgressState {
  std::string what, unit, note;
  std::int64_t total = 0, done = 0, started_at = 0;  // in units; total 0: unknown
  double seconds = 0;                                // time since started_at
  bool last = false;
};

// Returns a bar at most `columns` wide. To fit, the bar shrinks first; then parts of the note ("loss 3.2, 12 tokens/s")
// are dropped from the end, then the remaining time, then the rate. `blocks`: draw with block characters instead of
// ASCII.
std::string progress_bar(const ProgressState& state, std::size_t columns, bool blocks);
std::string progress_line(const ProgressState& state);

bool stderr_is_terminal();                         // whether stderr is a terminal that can erase a line
bool terminal_shows_blocks();                      // true unless the locale rules out UTF-8
std::size_t terminal_width();                      // in columns
std::size_t display_width(std::string_view text);  // in columns; for UTF-8 without wide or combining characters
std::string_view first_columns(std::string_view text, std::size_t columns);

}  // namespace headroom::detail
