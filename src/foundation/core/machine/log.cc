#include "log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <vector>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kPlainLine = std::chrono::seconds(10);
constexpr char kEraseLine[] = "\r\x1b[K";

std::atomic<LogLevel> level_now{LogLevel::info};
std::atomic<int> fewer_lines{0};

// Guards stderr and all Progress objects, which several threads may use.
std::mutex& screen() {
  static std::mutex mutex;
  return mutex;
}

// All progress bars, innermost last. Only the innermost is drawn.
std::vector<Progress*>& bars() {
  static std::vector<Progress*> stack;
  return stack;
}

void put(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

std::string& prefix() {
  static std::string text;
  return text;
}

bool silent() {
  return level_now < LogLevel::info;
}

}  // namespace

void set_log_level(LogLevel level) {
  level_now = level;
}

FewerLines::FewerLines() {
  ++fewer_lines;
}

FewerLines::~FewerLines() {
  --fewer_lines;
}

LogLevel log_level() {
  return level_now;
}

void set_log_prefix(const std::string& text) {
  const std::lock_guard lock(screen());
  prefix() = text;
}

void log_line(LogLevel level, std::string_view text) {
  if (level > level_now || level == LogLevel::quiet || (level == LogLevel::info && fewer_lines > 0)) {
    return;
  }
  const std::lock_guard lock(screen());
  Progress* const bar = bars().empty() || !bars().back()->terminal_ || silent() ? nullptr : bars().back();
  put(fmt::format("{}{}{}\n", bar != nullptr ? kEraseLine : "", prefix(), text));
  if (bar != nullptr) {
    bar->draw(false);
  }
}

Progress::Progress(std::string what, std::int64_t total, std::string unit)
    : what_(std::move(what)),
      unit_(std::move(unit)),
      total_(total),
      born_(Clock::now()),
      start_(born_),
      drawn_(start_),
      terminal_(detail::stderr_is_terminal()) {
  const std::lock_guard lock(screen());
  bars().push_back(this);
  if (terminal_) {  // draw now, since the first unit may take a long time
    draw(false);
  }
}

Progress::~Progress() {
  const std::lock_guard lock(screen());
  auto& stack = bars();
  const bool inner = stack.size() > 1;
  const bool failed_at_once = std::uncaught_exceptions() > 0 && done_ == started_at_;
  // A short-lived inner bar leaves no trace; neither does a bar whose work failed before its first unit.
  if (!failed_at_once && (!inner || (!terminal_ && drawn_ != start_))) {
    draw(true);
  } else if (terminal_ && !silent()) {
    put(kEraseLine);
  }
  std::erase(stack, this);
  if (!stack.empty()) {  // exclude the inner bar's time from the outer bar
    stack.back()->start_ += Clock::now() - born_;
  }
}

void Progress::start_at(std::int64_t done) {
  const std::lock_guard lock(screen());
  done_ = started_at_ = done;
  start_ = drawn_ = Clock::now();
}

void Progress::update(std::int64_t done, std::string_view note) {
  const std::lock_guard lock(screen());
  done_ = done;
  note_ = note;
  const auto now = Clock::now();
  if (bars().back() == this && now - drawn_ >= (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kPlainLine))) {
    drawn_ = now;
    draw(false);
  }
}

void Progress::draw(bool last) {
  if (silent()) {
    return;
  }
  const detail::ProgressState state{
      .what = what_,
      .unit = unit_,
      .note = note_,
      .total = total_,
      .done = done_,
      .started_at = started_at_,
      .seconds = std::chrono::duration<double>(Clock::now() - start_).count(),
      .last = last,
  };
  if (terminal_) {
    // One column is left free, because some terminals wrap a full line.
    const std::string bar = detail::progress_bar(state, detail::terminal_width() - 1, detail::terminal_shows_blocks());
    put(fmt::format("{}{}{}", kEraseLine, bar, last ? "\n" : ""));
  } else {
    put(detail::progress_line(state) + "\n");
  }
}

}  // namespace headroom

namespace headroom::detail {
namespace {

constexpr std::size_t kWidestBar = 30, kNarrowestBar = 6;

double rate_of(const ProgressState& s) {
  const auto done = static_cast<double>(s.done - s.started_at);
  return s.seconds > 0 && done > 0 ? done / s.seconds : 0.0;
}

// Rounds large counts. Counts of steps stay exact, so that they can be looked up.
std::string count_of(std::int64_t number, std::int64_t largest) {
  return largest < 10'000'000 ? fmt::format("{}", number) : format_count(static_cast<double>(number));
}

std::string amount(const ProgressState& s) {
  const std::int64_t largest = std::max(s.done, s.total);
  if (s.unit == "B") {
    const std::string done = format_bytes(static_cast<double>(s.done));
    return s.total > 0 ? done + "/" + format_bytes(static_cast<double>(s.total)) : done;
  }
  if (s.total > 0) {
    return fmt::format("{}/{} {}", count_of(s.done, largest), count_of(s.total, largest), s.unit);
  }
  return fmt::format("{} {}", count_of(s.done, largest), s.unit);
}

std::string rate_text(const ProgressState& s) {
  const double rate = rate_of(s);
  if (rate == 0.0) {
    return {};
  }
  if (rate < 0.1) {
    const std::string one = s.unit.ends_with('s') ? s.unit.substr(0, s.unit.size() - 1) : s.unit;
    return fmt::format("{} a {}", format_duration(1.0 / rate), one);
  }
  const double rounded = rate < 1000 ? std::round(rate * 10) / 10 : rate;
  return s.unit == "B" ? format_bytes(rounded) + "/s" : fmt::format("{} {}/s", format_count(rounded), s.unit);
}

std::string time_text(const ProgressState& s) {
  if (s.last) {
    return format_duration(s.seconds);
  }
  const double rate = rate_of(s);
  if (rate == 0.0 || s.total <= s.done) {
    return {};
  }
  return format_duration(static_cast<double>(s.total - s.done) / rate) + " left";
}

std::string drawn_bar(const ProgressState& s, std::size_t width, bool blocks) {
  const double part = std::clamp(static_cast<double>(s.done) / static_cast<double>(s.total), 0.0, 1.0);
  const auto full = static_cast<std::size_t>(part * static_cast<double>(width));
  std::string bar;
  for (std::size_t i = 0; i < width; ++i) {
    bar += i < full ? (blocks ? "█" : "#") : (blocks ? "░" : "-");
  }
  return bar;
}

void add(std::string& line, std::string_view separator, const std::string& part) {
  if (!part.empty()) {
    line += line.empty() ? "" : separator;
    line += part;
  }
}

constexpr std::string_view kBetweenParts = ", ";

std::vector<std::string> parts_of(std::string_view note) {
  std::vector<std::string> parts;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = note.find(kBetweenParts);
    parts.emplace_back(note.substr(0, end));
    note.remove_prefix(end == std::string_view::npos ? note.size() : end + kBetweenParts.size());
  }
  return parts;
}

}  // namespace

std::string progress_bar(const ProgressState& s, std::size_t columns, bool blocks) {
  std::string tail = amount(s);
  // Adds parts by importance, and omits those that do not fit.
  const std::size_t taken = display_width(s.what) + 2;
  const auto fits = [&](std::string_view separator, const std::string& part) {
    std::string longer = tail;
    add(longer, separator, part);
    const bool fit = taken + display_width(longer) <= columns;
    if (fit) {
      tail = std::move(longer);
    }
    return fit;
  };
  fits("  ", rate_text(s));
  fits("  ", time_text(s));
  std::string_view separator = "  ";
  for (const std::string& part : parts_of(s.note)) {
    if (!fits(separator, part)) {
      break;
    }
    separator = kBetweenParts;
  }
  std::string line = s.what;
  const std::size_t without = taken + display_width(tail);
  if (s.total > 0 && without + 2 + kNarrowestBar <= columns) {
    add(line, "  ", drawn_bar(s, std::min(kWidestBar, columns - without - 2), blocks));
  }
  add(line, "  ", tail);
  return std::string(first_columns(line, columns));
}

std::string progress_line(const ProgressState& s) {
  std::string tail = amount(s);
  if (s.last) {
    tail += " in " + time_text(s);
  }
  add(tail, ", ", rate_text(s));
  if (!s.last) {
    add(tail, ", ", time_text(s));
  }
  add(tail, ", ", s.note);
  return s.what + ": " + tail;
}

bool stderr_is_terminal() {
  const char* const kind = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (kind == nullptr || std::string_view(kind) != "dumb");
}

bool terminal_shows_blocks() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') {
      const std::string_view locale = value;
      return locale.find("UTF-8") != locale.npos || locale.find("utf8") != locale.npos ||
             locale.find("UTF8") != locale.npos || locale.find("utf-8") != locale.npos;
    }
  }
  return true;  // containers often set no locale, and terminals show UTF-8
}

std::size_t terminal_width() {
  struct winsize size {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return size.ws_col;
  }
  return 80;
}

}  // namespace headroom::detail
