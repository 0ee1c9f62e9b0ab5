// The page of a folder in which training goes on.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "markup.h"
#include "tools/compare/compare.h"
#include "tools/compare/figures/assemble.h"
#include "tools/compare/run/record.h"
#include "tools/compare/run/result_file.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRefreshSeconds = 5;
constexpr std::array<std::string_view, 4> kShownFiles = {"metrics.jsonl", "samples.jsonl", kResultFile, kRecordFile};

// The files that a page is made of, with sizes and times: where these are the same, so is the page.
using Stamp = std::vector<std::tuple<fs::path, std::uintmax_t, fs::file_time_type>>;

Stamp stamp_of(const fs::path& folder) {
  Stamp stamp;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code gone;  // a file that is replaced just now
    if (name == "checkpoints") {
      entry.disable_recursion_pending();
    } else if (std::find(kShownFiles.begin(), kShownFiles.end(), name) != kShownFiles.end()) {
      stamp.emplace_back(entry->path(), entry->file_size(gone), entry->last_write_time(gone));
    }
  }
  std::sort(stamp.begin(), stamp.end());
  return stamp;
}

// Whether a run of the folder, or the folder itself, is being worked on: processes that share a comparison's runs out
// hold its own lock for moments only.
bool is_worked_on(const fs::path& folder) {
  if (FolderLock::is_held(folder)) {
    return true;
  }
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename() == "checkpoints") {
      entry.disable_recursion_pending();
    } else if (entry->path().filename() == ".lock" && FolderLock::is_held(entry->path().parent_path())) {
      return true;
    }
  }
  return false;
}

// "About 3 min of training are left."; empty of several runs, whose number of steps is not one.
std::string time_left(const CompareResult& result) {
  const ComparedRun& run = result.runs.front();
  const auto done = static_cast<double>(run.result().steps), steps = static_cast<double>(run.config.train.steps);
  return result.kind != Kind::run || !(done > 0.0) || done >= steps
             ? ""
             : fmt::format("About {} of training left.", format_duration(run.result().seconds * (steps - done) / done));
}

class Watch {
 public:
  explicit Watch(fs::path folder) : folder_(std::move(folder)) {}

  void until_the_training_ends() {
    while (goes_on()) {
      const Clock::time_point began = Clock::now();
      rewrite();
      // A page of long runs takes a while: most of the time is the training's.
      constexpr int kShare = 20;
      pause(std::max<Clock::duration>(std::chrono::seconds(1), kShare * (Clock::now() - began)));
    }
  }

 private:
  // Between two runs of a comparison nothing is held for a while.
  bool goes_on() {
    constexpr auto kBetweenRuns = std::chrono::seconds(3);
    const bool held = is_worked_on(folder_);
    if (held) {
      seen_ = Clock::now();
    }
    const bool comparison = fs::exists(folder_ / kRecordFile);
    return !interrupted() && (held || (comparison && Clock::now() - seen_ < kBetweenRuns));
  }

  void pause(Clock::duration length) {
    constexpr auto kSlice = std::chrono::milliseconds(200);
    for (const Clock::time_point end = Clock::now() + length; Clock::now() < end && goes_on();) {
      std::this_thread::sleep_for(kSlice);
    }
  }

  void rewrite() {
    Stamp now = stamp_of(folder_);
    if (now == shown_) {
      return;
    }
    try {
      CompareResult result = result_in(folder_);
      if (std::string left = time_left(result); !left.empty()) {
        result.conclusion.push_back(std::move(left));
      }
      result.refresh_seconds = kRefreshSeconds;
      publish(result, folder_);
      say(result);
    } catch (const UserError& error) {  // nothing to show yet
      log_debug("{}", error.what());
    }
    shown_ = std::move(now);
  }

  void say(const CompareResult& result) {
    if (result.kind != Kind::run) {
      log_info("{}: {} shown", result.report.string(), counted(result.runs.size(), "run"));
      return;
    }
    const ComparedRun& run = result.runs.front();
    if (!progress_) {
      progress_.emplace(result.report.string(), run.config.train.steps, "step");
      progress_->start_at(run.result().steps);
    }
    progress_->update(run.result().steps, fmt::format("loss {:.3f}", run.result().train_loss));
  }

  fs::path folder_;
  Stamp shown_;
  Clock::time_point seen_;  // at work
  std::optional<Progress> progress_;
};

}  // namespace

CompareResult watch(const fs::path& folder) {
  if (is_worked_on(folder)) {
    log_info("{}: written again while training goes on; Ctrl-C ends the watching, not the training",
             (folder / "report.html").string());
    Watch(folder).until_the_training_ends();
  } else {
    log_info("{}: nothing is being trained there: the page is written once", folder.string());
  }
  CompareResult result = report(folder);
  result.interrupted = interrupted();
  return result;
}

}  // namespace headroom::compare
