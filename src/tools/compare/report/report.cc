// Writes the page of a folder again, once or whenever a run in it has logged something.
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

#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "sections.h"
#include "tools/compare/figures/result.h"
#include "tools/compare/run/comparison_file.h"
#include "tools/compare/run/execution.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kRefreshSeconds = 5;
constexpr std::array<std::string_view, 5> kSources = {"metrics.jsonl", "samples.jsonl", train::kOriginFile,
                                                      train::kResultFile, kRecordFile};

// Returns the result of a folder of a comparison, a sweep or a single run. Throws UserError if the folder contains none
// of these, or nothing to show yet.
CompareResult load_result(const fs::path& folder) {
  if (!fs::exists(folder / kRecordFile)) {
    CompareResult result{.kind = Kind::run};
    result.runs.push_back(load_run(folder));
    result.title = "Training of " + result.runs.front().name;
    result.command = result.runs.front().trained.front().origin.command;
    result.conclusion = conclude(result.runs);
    result.notes = load_notes(result.runs);
    return result;
  }
  const ComparisonRecord record = read_record(folder);
  const auto trained =
      std::ranges::find_if(record.plan.models, [](const PlannedModel& model) { return !model.choices.empty(); });
  CompareResult result;
  if (trained != record.plan.models.end()) {
    const tasks::Task& task = tasks::task_for(trained->choices.front().config, "report");
    Runs runs(task, {});
    result = make_result(record, runs);
  }
  if (record.kind == Kind::demo && fs::exists(folder / kLookupFolder / kRecordFile)) {
    result.further.push_back(load_result(folder / kLookupFolder));
  }
  if (result.runs.empty()) {
    user_error("report: {}: no run has finished yet", folder.string());
  }
  return result;
}

// The files from which the page is generated, with their sizes and modification times.
using Stamp = std::vector<std::tuple<fs::path, std::uintmax_t, fs::file_time_type>>;

// Calls visit(entry) for everything in the folder and its subfolders except checkpoints.
template <class Visit>
void walk(const fs::path& folder, const Visit& visit) {
  const auto visit_wanted = [&](const fs::directory_entry& entry) {
    const bool wanted = entry.path().filename() != "checkpoints";
    if (wanted) {
      visit(entry);
    }
    return wanted;
  };
  walk_folder(folder, visit_wanted, fs::directory_options::skip_permission_denied);
}

Stamp stamp_of(const fs::path& folder) {
  Stamp stamp;
  walk(folder, [&](const fs::directory_entry& entry) {
    std::error_code gone;  // the file is being replaced
    if (std::ranges::find(kSources, entry.path().filename()) != kSources.end()) {
      stamp.emplace_back(entry.path(), entry.file_size(gone), entry.last_write_time(gone));
    }
  });
  std::ranges::sort(stamp);
  return stamp;
}

// Whether a process holds the lock of the folder or of a run in it.
bool is_in_use(const fs::path& folder) {
  bool held = FolderLock::is_held(folder);
  walk(folder, [&](const fs::directory_entry& entry) {
    held = held || (entry.path().filename() == ".lock" && FolderLock::is_held(entry.path().parent_path()));
  });
  return held;
}

// Returns "About 3 min of training left."; empty for several runs.
std::string time_left(const CompareResult& result) {
  const ComparedRun& run = result.runs.front();
  const auto done = static_cast<double>(run.result().steps), steps = static_cast<double>(run.config.train.steps);
  return result.kind != Kind::run || !(done > 0.0) || done >= steps
             ? ""
             : fmt::format("About {} of training left.", format_duration(run.result().seconds * (steps - done) / done));
}

class Watcher {
 public:
  explicit Watcher(fs::path folder) : folder_(std::move(folder)) {}

  void until_training_ends() {
    while (is_training()) {
      const Clock::time_point began = Clock::now();
      rewrite();
      // Pages of long runs are slow to generate; pause long enough to leave most of the CPU time to training.
      constexpr int kShare = 20;
      pause(std::max<Clock::duration>(std::chrono::seconds(1), kShare * (Clock::now() - began)));
    }
  }

 private:
  // No lock is held for a moment between the two comparisons of the demo.
  bool is_training() {
    constexpr auto kBetween = std::chrono::seconds(3);
    const bool held = is_in_use(folder_);
    if (held) {
      last_in_use_ = Clock::now();
    }
    const bool comparison = fs::exists(folder_ / kRecordFile);
    return !interrupted() && (held || (comparison && Clock::now() - last_in_use_ < kBetween));
  }

  void pause(Clock::duration length) {
    constexpr auto kSlice = std::chrono::milliseconds(200);
    for (const Clock::time_point end = Clock::now() + length; Clock::now() < end && is_training();) {
      std::this_thread::sleep_for(kSlice);
    }
  }

  void rewrite() {
    Stamp now = stamp_of(folder_);
    if (now == shown_) {
      return;
    }
    try {
      CompareResult result = load_result(folder_);
      if (std::string left = time_left(result); !left.empty()) {
        result.conclusion.push_back(std::move(left));
      }
      result.refresh_seconds = kRefreshSeconds;
      write_page(result, folder_ / kPageFile);
      log_progress(result);
    } catch (const UserError& error) {  // nothing to show yet
      log_debug("{}", error.what());
    }
    shown_ = std::move(now);
  }

  void log_progress(const CompareResult& result) {
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
  Clock::time_point last_in_use_;
  std::optional<Progress> progress_;
};

}  // namespace

bool has_page(const fs::path& folder) {
  return fs::exists(folder / kRecordFile) || fs::exists(folder / "config.toml");
}

CompareResult report(const fs::path& folder, const fs::path& page) {
  CompareResult result = load_result(folder);
  if (result.kind == Kind::run) {
    add_sample(result);
  }
  write_page(result, page.empty() ? folder / kPageFile : page);
  return result;
}

CompareResult watch(const fs::path& folder) {
  if (is_in_use(folder)) {
    log_info("{}: updated during training; Ctrl-C stops watching, not the training", (folder / kPageFile).string());
    Watcher(folder).until_training_ends();
  } else {
    log_info("{}: nothing is being trained there; the page is written once", folder.string());
  }
  CompareResult result = report(folder);
  result.interrupted = interrupted();
  return result;
}

}  // namespace headroom::compare
