#include "foundation/core/machine/log.h"

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

#include "foundation/core/text/utf8.h"

namespace headroom::log_test {

using detail::progress_bar;
using detail::progress_line;
using detail::ProgressState;

ProgressState state() {
  return {.what = "train", .unit = "steps", .note = "loss 3.214", .total = 1000, .done = 312, .seconds = 97.5};
}

TEST(ProgressText, BarShowsEverythingIfThereIsSpace) {
  EXPECT_EQ(progress_bar(state(), 100, true),
            "train  █████████░░░░░░░░░░░░░░░░░░░░░  312/1000 steps  3.2 steps/s  3 min 35 s left  loss 3.214");
  EXPECT_EQ(progress_bar(state(), 100, false),
            "train  #########---------------------  312/1000 steps  3.2 steps/s  3 min 35 s left  loss 3.214");
}

TEST(ProgressText, BarFitsAnyWidth) {
  for (std::size_t columns = 1; columns < 120; ++columns) {
    const std::string bar = progress_bar(state(), columns, true);
    EXPECT_LE(display_width(bar), columns);
  }
  EXPECT_EQ(progress_bar(state(), 50, true), "train  312/1000 steps  3.2 steps/s  loss 3.214");
  ProgressState noted = state();
  noted.note = "loss 3.214, 12.3 k tokens/s, 210 GFLOP/s (63% of the machine's)";
  EXPECT_EQ(progress_bar(noted, 80, true),
            "train  312/1000 steps  3.2 steps/s  3 min 35 s left  loss 3.214, 12.3 k tokens/s");
  EXPECT_EQ(progress_bar(state(), 21, true), "train  312/1000 steps");
  EXPECT_EQ(progress_bar(state(), 8, true), "train  3");
}

TEST(ProgressText, BarIsFullAtTheEndAndNeverFuller) {
  ProgressState s = state();
  s.done = 1000;
  s.last = true;
  EXPECT_EQ(progress_bar(s, 70, true), "train  ████████  1000/1000 steps  10.3 steps/s  1 min 38 s  loss 3.214");
  s.done = 5000;
  EXPECT_EQ(progress_bar(s, 70, true), "train  ████████  5000/1000 steps  51.3 steps/s  1 min 38 s  loss 3.214");
}

TEST(ProgressText, RateExcludesEarlierWork) {
  ProgressState s = state();
  s.started_at = 300;
  s.seconds = 6;
  EXPECT_EQ(progress_line(s), "train: 312/1000 steps, 2 steps/s, 5 min 44 s left, loss 3.214");
  s.started_at = 312;
  EXPECT_EQ(progress_line(s), "train: 312/1000 steps, loss 3.214");
}

// Returns what `work` writes to stderr in a child process. stderr is a terminal with this many columns, or a pipe if 0.
// The last bytes can be lost when the last writer closes a terminal, so this process keeps it open and marks the end.
std::string written_by(const std::function<void()>& work, unsigned short columns) {
  int reader = -1, writer = -1, pipe_ends[2] = {-1, -1};
  const struct winsize size = {24, columns, 0, 0};
  if (columns > 0 ? ::openpty(&reader, &writer, nullptr, nullptr, &size) != 0 : ::pipe(pipe_ends) != 0) {
    return "no terminal or pipe";
  }
  if (columns == 0) {
    reader = pipe_ends[0];
    writer = pipe_ends[1];
  }
  constexpr char kEnd = '\x03';
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("TERM", "xterm", 1);
    ::setenv("LC_ALL", "C.UTF-8", 1);
    ::dup2(writer, STDERR_FILENO);
    work();
    std::_Exit(::write(writer, &kEnd, 1) == 1 ? 0 : 1);
  }
  std::string text;
  char block[4096];
  struct pollfd ready = {reader, POLLIN, 0};
  while (!text.ends_with(kEnd) && ::poll(&ready, 1, 60'000) > 0) {
    text.append(block, static_cast<std::size_t>(std::max<ssize_t>(::read(reader, block, sizeof block), 0)));
  }
  ::close(reader);
  ::close(writer);
  ::waitpid(child, nullptr, 0);
  return text.substr(0, text.find(kEnd));
}

void pause_for_redraw() {
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
}

TEST(ProgressTest, DrawsOnATerminalAndEndsTheLine) {
  const std::string text = written_by(
      [] {
        Progress progress("train", 10, "steps");
        pause_for_redraw();
        progress.update(5, "loss 1.5");
        progress.update(6, "loss 1.4");  // drawn too recently to be redrawn
        log_info("a line between");
        progress.update(10, "loss 1.0");
      },
      100);
  const std::size_t bar = text.find("\r\x1b[Ktrain  ███████████████░░░░░░░░░░░░░░░  5/10 steps");
  const std::size_t line = text.find("\r\x1b[Ka line between\r\n\r\x1b[Ktrain  ");
  EXPECT_TRUE(text.starts_with("\r\x1b[Ktrain  ░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░  0/10 steps\r")) << text;
  ASSERT_NE(bar, std::string::npos) << text;
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_LT(bar, line);
  EXPECT_NE(text.find("10/10 steps", line), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("loss 1.0\r\n")) << text;
}

TEST(ProgressTest, AnInnerOneLeavesNoTrace) {
  const std::string text = written_by(
      [] {
        Progress outer("train", 10, "steps");
        outer.update(5);
        {
          Progress inner("evaluate", 4, "batches");
          pause_for_redraw();
          inner.update(2);
          outer.update(6);  // hidden while the inner bar is shown
        }
        outer.update(7);
      },
      100);
  EXPECT_NE(text.find("2/4 batches"), std::string::npos) << text;
  EXPECT_EQ(text.find("4/4 batches"), std::string::npos) << text;
  EXPECT_EQ(text.find("6/10"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST(ProgressTest, WritesPlainLinesElsewhere) {
  const std::string text = written_by(
      [] {
        Progress progress("train", 10, "steps");
        for (int i = 1; i <= 10; ++i) {
          progress.update(i, "loss 1.0");
        }
        log_info("a line between");
      },
      0);
  EXPECT_TRUE(text.starts_with("a line between\ntrain: 10/10 steps in ")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

TEST(ProgressTest, LinesFromOtherThreadsStayWhole) {
  const std::string text = written_by(
      [] {
        Progress progress("train", 1000, "steps");
        std::thread other([] {
          for (int i = 0; i < 200; ++i) {
            log_info("line {} end", i);
          }
        });
        for (int i = 0; i < 1000; ++i) {
          progress.update(i);
        }
        other.join();
      },
      80);
  for (int i = 0; i < 200; ++i) {
    EXPECT_NE(text.find(fmt::format("\r\x1b[Kline {} end\r\n", i)), std::string::npos) << i;
  }
}

TEST(Log, LevelsHideLines) {
  const auto all = [] {
    log_line(LogLevel::debug, "debug");
    log_info("info");
    log_warning("{}", "careful");
    Progress progress("work", 2, "steps");
    progress.update(2);
  };
  const auto at = [&all](LogLevel level) {
    return written_by(
        [&all, level] {
          set_log_level(level);
          all();
        },
        0);
  };
  EXPECT_EQ(at(LogLevel::quiet), "");
  EXPECT_EQ(at(LogLevel::warning), "warning: careful\n");
  EXPECT_TRUE(at(LogLevel::info).starts_with("info\nwarning: careful\nwork: 2/2 steps")) << at(LogLevel::info);
  EXPECT_TRUE(at(LogLevel::debug).starts_with("debug\ninfo\n"));
}

}  // namespace headroom::log_test
