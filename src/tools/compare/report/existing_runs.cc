// Compares existing runs without training, and lists runs.
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "sections.h"
#include "tools/compare/figures/result.h"
#include "tools/compare/run/checks.h"
#include "tools/compare/run/comparison_file.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

namespace fs = std::filesystem;

// Returns the folder's own name; for "." and "..", the name of the folder that the path refers to.
std::string name_of(const fs::path& folder) {
  return absolute_path(folder).filename().string();
}

bool has_finished(const ComparedRun& run) {
  return run.result().steps >= run.config.train.steps || !run.trained.front().diverged.empty();
}

// "700" or "300 of 700".
std::string steps_of(const ComparedRun& run) {
  return has_finished(run) ? fmt::format("{}", run.result().steps)
                           : fmt::format("{} of {}", run.result().steps, run.config.train.steps);
}

// Throws UserError if the recorded data differ.
void check_recorded_data(const std::vector<ComparedRun>& runs) {
  const NamedData first{.name = runs.front().name, .data = runs.front().trained.front().origin.data};
  for (const ComparedRun& run : runs) {
    check_same_data(first, {.name = run.name, .data = run.trained.front().origin.data}, "report");
  }
}

}  // namespace

ComparedRun load_run(const fs::path& folder) {
  if (!fs::exists(folder / "config.toml")) {
    user_error("report: {}: holds neither a training run (config.toml) nor a comparison (comparison.json)",
               folder.string());
  }
  ComparedRun run;
  run.name = name_of(folder);
  run.folder = folder;
  run.config = train::read_run_config(folder);
  run.trained.push_back(train::read_run(folder, run.config, run.task()));
  const RunLog& log = run.trained.front().log;
  if (log.training.empty() && log.validation.empty()) {
    user_error("report: {}: metrics.jsonl is empty; the page can be made once the run has logged something",
               folder.string());
  }
  run.count_costs();
  return run;
}

CompareResult overlay(const std::vector<fs::path>& folders, const std::string& command) {
  CompareResult result{.title = fmt::format("Comparison of {} runs", folders.size()), .command = command};
  std::vector<NamedConfig> configs;
  std::vector<std::string> unfinished;
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / kRecordFile)) {
      user_error("report: {}: is a comparison or a sweep, expected run folders; name the runs in it, or it alone",
                 folder.string());
    }
    ComparedRun& run = result.runs.emplace_back(load_run(folder));
    const bool same_name =
        std::ranges::count_if(folders, [&](const fs::path& other) { return name_of(other) == run.name; }) > 1;
    run.name = same_name ? folder.lexically_normal().generic_string() : run.name;
    configs.push_back({run.name, run.config});
    if (!has_finished(run)) {
      unfinished.push_back(fmt::format("{} ({} steps)", run.name, steps_of(run)));
    }
  }
  check_comparable(configs, "report");
  check_recorded_data(result.runs);
  result.notes = notes_on(result, {});
  if (!unfinished.empty()) {
    result.notes.push_back(fmt::format("Not finished yet: {}.", enumerated(unfinished)));
  }
  result.conclusion = conclude(result.runs);
  add_speedups(result);
  return result;
}

std::vector<fs::path> distinct_folders(const std::vector<fs::path>& folders) {
  std::vector<fs::path> distinct;
  for (const fs::path& folder : folders) {
    std::error_code missing;
    if (std::ranges::any_of(distinct, [&](const fs::path& one) { return fs::equivalent(one, folder, missing); })) {
      log_warning("report: {}: is named twice; it is shown once", folder.string());
    } else {
      distinct.push_back(folder);
    }
  }
  return distinct;
}

std::vector<ComparedRun> list_runs(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    user_error("report: {}: no such folder; name the folder that holds your runs", folder.string());
  }
  std::vector<ComparedRun> runs;
  const auto add = [&](const fs::path& run) {
    if (fs::exists(run / "metrics.jsonl", error)) {
      try {
        runs.push_back(load_run(run));
        runs.back().name = run.lexically_relative(folder).generic_string();
      } catch (const UserError& unreadable) {
        log_warning("{}; left out", unreadable.what());
      }
    }
  };
  add(folder);
  const auto visit = [&](const fs::directory_entry& entry) {
    const fs::path& path = entry.path();
    const bool wanted = entry.is_directory(error) && path.filename() != "checkpoints";
    if (wanted) {
      add(path);
    }
    return wanted;
  };
  if (const std::error_code stopped = walk_folder(folder, visit, fs::directory_options::skip_permission_denied)) {
    log_warning("report: {}: some folders cannot be read: {}", folder.string(), stopped.message());
  }
  if (runs.empty()) {
    user_error("report: {}: holds no runs", folder.string());
  }
  std::ranges::sort(runs, {}, &ComparedRun::folder);
  return runs;
}

std::string render_runs(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<std::string>> rows = {
      {"run", "validation", "steps", "parameters", "tokens/s", "time", "finished"}};
  for (const ComparedRun& run : runs) {
    const TrainedRun& trained = run.trained.front();
    rows.push_back({run.name,
                    !trained.diverged.empty() ? "diverged"
                    : run.has_figure() ? fmt::format("{} {}", run.headline_kind().words, plain_number(run.headline()))
                                       : kUnknown,
                    steps_of(run), short_number(static_cast<double>(trained.result.parameters)),
                    trained.result.tokens_per_second > 0.0 ? short_number(trained.result.tokens_per_second) : kUnknown,
                    format_duration(trained.result.seconds), trained.finished.empty() ? kUnknown : trained.finished});
  }
  return text_table(rows, {true, true, false, false, false, false, true});
}

Json to_json(const std::vector<ComparedRun>& runs) {
  Json list = Json::array();
  for (const ComparedRun& run : runs) {
    const TrainedRun& trained = run.trained.front();
    Json& json = list.emplace_back(Json{{"name", run.name}, {"folder", run.folder.string()}});
    json.update(to_json(trained.result, run.task()));
    json[run.headline_kind().name] = run.headline();
    json["steps_wanted"] = run.config.train.steps;
    json["diverged"] = !trained.diverged.empty();
    for (const auto& [key, text] :
         {std::pair("finished", &trained.finished), std::pair("command", &trained.origin.command),
          std::pair("machine", &trained.origin.machine), std::pair("program", &trained.origin.program)}) {
      json[key] = text->empty() ? Json() : Json(*text);
    }
  }
  return list;
}

}  // namespace headroom::compare
