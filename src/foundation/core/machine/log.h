// Log lines and a progress bar on stderr. Thread-safe.
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
