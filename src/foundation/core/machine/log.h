// Log lines and a progress bar on stderr. Safe to use from several threads.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "headroom/core/error.h"

namespace headroom {

enum class LogLevel { quiet, warning, info, debug };
void set_log_level(LogLevel level);
LogLevel log_level();
void set_log_prefix(const std::string& prefix);  // in front of every later line

// Writes one line to stderr, above the progress bar if one is drawn.
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

// While an object of this class is alive, lines of level info are suppressed; progress and warnings are shown.
class FewerLines {
 public:
  FewerLines();
  ~FewerLines();
  FewerLines(const FewerLines&) = delete;
  FewerLines& operator=(const FewerLines&) = delete;
};

// Progress of work with a known (or, with total 0, unknown) number of units. A terminal shows a bar with rate and time
// left, redrawn at most ten times a second; elsewhere a plain line is written about every 10 seconds. Bars nest: only
// the newest is drawn, and its duration does not count in the rate of the outer one. The destructor ends the line, or
// erases it if an exception ended the work before its first unit.
class Progress {
 public:
  Progress(std::string what, std::int64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` units so far; `note` is shown after it ("loss 3.21").
  void update(std::int64_t done, std::string_view note = {});
  // Units that an earlier process has done (a resumed run); they do not count in the rate.
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
