// What the program says while it works: lines on stderr and a progress bar.
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
void set_log_prefix(const std::string& prefix);  // in front of every line from now on

// One line on stderr, above the progress bar if one is drawn.
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

// While one is alive, lines of information are left out; progress and warnings are shown.
class FewerLines {
 public:
  FewerLines();
  ~FewerLines();
  FewerLines(const FewerLines&) = delete;
  FewerLines& operator=(const FewerLines&) = delete;
};

// Progress of work with a known (or, with total 0, unknown) number of units: on a terminal a bar with rate and
// time left, redrawn at most ten times a second; elsewhere a plain line now and then (every ~10 seconds).
// At most one bar is drawn at a time, the one made last; the time that it takes does not count in the rate of the one
// before it. The destructor ends the line, or takes it away where an error ends the work before its first unit.
class Progress {
 public:
  Progress(std::string what, std::int64_t total, std::string unit);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` units so far; `note` is shown after it ("loss 3.21").
  void update(std::int64_t done, std::string_view note = {});
  // Units that were done before this process began (a resumed run): not part of the rate.
  void start_at(std::int64_t done);

 private:
  friend void log_line(LogLevel, std::string_view);
  void draw(bool last);
  std::string what_, unit_, note_;
  std::int64_t total_, done_ = 0, started_at_ = 0;
  std::chrono::steady_clock::time_point born_, start_, drawn_;
  bool terminal_;
};

std::string format_duration(double seconds);  // "45 s", "3 min 20 s", "2 h 05 min"
std::string format_count(double number);      // "512", "47.3 k", "170.4 M", "5.4 G"
std::string format_bytes(double bytes);       // "12.3 MiB"
// So many digits after the point; what is rounded to zero has no sign: "0.00", never "-0.00".
std::string format_decimal(double number, int digits);

}  // namespace headroom
