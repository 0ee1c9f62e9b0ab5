#include "log.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <mutex>
#include <vector>

#include "progress.h"

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
