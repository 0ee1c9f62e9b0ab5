// Log lines and a progress bar on stderr. Thread-safe.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "headroom/core/error.h"

namespace headroom {

enum class LogLevel { quiet, warning, info, debug };
void set_log_level(LogLevel level);
LogLevel log_level();
void set_log_prefix(const std::string& prefix);  // prepended to every later line

// Writes one line to stderr; if a progress bar is shown, the line appears above it.
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::info, detail::message(format, fmt::make_format_args(args...)));
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::debug, detail::message(format, fmt::make_format_args(args...)));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::warning, "warning: " + detail::message(format, fmt::make_format_args(args...)));
}

// While an object of this class exists, lines of level info are suppressed. Progress and warnings are still shown.
class FewerLines {
 public:
  FewerLines();
  ~FewerLines();
  FewerLines(const FewerLines&) = delete;
  FewerLines& operator=(const FewerLines&) = delete;
};

// Shows the progress of work with a known number of units, or an unknown one (total 0). On a terminal, shows a bar with
// rate and remaining time, redrawn at most ten times per second; elsewhere, writes a plain line about every 10 seconds.
// Bars nest: only the newest is drawn, and its duration is excluded from the rate of the outer bar. The destructor ends
// the line, or erases it if an exception ended the work before its first unit.
class Progress {
 public:
  Progress(std::string what, std::int64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Reports that `done` units are complete. `note` is shown after the bar ("loss 3.21").
  void update(std::int64_t done, std::string_view note = {});
  // Sets the number of units that an earlier process completed (in a resumed run). They do not count in the rate.
  void start_at(std::int64_t done);

 private:
  friend void log_line(LogLevel, std::string_view);
  void draw(bool last);
  std::string what_, unit_, note_;
  std::int64_t total_, done_ = 0, started_at_ = 0;
  std::chrono::steady_clock::time_point born_, start_, drawn_;
  bool terminal_;
};

}  // namespace headroom

// Formats progress as pure functions of its state, as a bar for terminals or a plain line, and queries the terminal
// that stderr writes to.

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

bool stderr_is_terminal();     // whether stderr is a terminal that can erase a line
bool terminal_shows_blocks();  // true unless the locale rules out UTF-8
std::size_t terminal_width();  // in columns

}  // namespace headroom::detail
