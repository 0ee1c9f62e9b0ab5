#include "runs.h"

#include <torch/version.h>

#include <utility>

#include "fairness.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/models/compute.h"
#include "program.h"
#include "result_file.h"
#include "tools/compare/figures/history.h"
#include "tools/compare/report/markup.h"
#include "training/cost/cost.h"

namespace headroom::compare {
namespace {

std::string describe_machine(const config::TrainOptions& options) {
  const std::int64_t threads = options.threads == 0 ? own_cores() : options.threads;
  const at::Device device = models::resolve(options.device);
  return fmt::format("{}, {}{}, {}, torch {}", cpu_name(), counted(static_cast<std::size_t>(threads), "thread"),
                     device.is_cpu() ? "" : ", " + device.str(),
                     config::name_of(models::resolve(options.precision, device)), TORCH_VERSION);
}

}  // namespace

config::Config folder_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.toml";
  config::Config config = config::parse_config(read_text_file(file), file.string());
  config::check(config, file.string());
  return config;
}

namespace {

// In what the folder's run is another than the planned one; empty: in nothing, or there is none.
std::string difference_from(const PlannedRun& run) {
  if (!std::filesystem::exists(run.folder / "config.toml")) {
    return "";
  }
  const config::Config there = folder_config(run.folder);
  config::Config here = run.config;
  if (here.vocabulary_follows_tokenizer) {
    here.model.vocabulary_size = there.model.vocabulary_size;
  }
  return first_difference(there, here);
}

}  // namespace

namespace {
struct TrainedElsewhere {};
}  // namespace

bool is_carried_out(const PlannedRun& run) {
  return std::filesystem::exists(run.folder / kResultFile) && std::filesystem::exists(run.folder / "config.toml") &&
         difference_from(run).empty();
}

void check_folder(const PlannedRun& run) {
  const std::string difference = difference_from(run);
  if (!difference.empty()) {
    user_error("{}: holds a run of another configuration ({}): choose another folder or remove it", run.folder.string(),
               difference);
  }
}

const TrainedRun* Runs::train(const PlannedRun& run, const std::string& title) {
  if (const TrainedRun* found = find(run)) {
    log_info("{}: trained before, kept; remove {} to train it again", title, run.folder.string());
    return found;
  }
  try {
    return &(known_[run.folder] = train_anew(run, title));
  } catch (const TrainedElsewhere&) {
    known_.erase(run.folder);
    return find(run);
  } catch (const InUseError&) {
    known_.erase(run.folder);
    return nullptr;
  }
}

const TrainedRun* Runs::find(const PlannedRun& run) {
  auto found = known_.find(run.folder);
  if (found == known_.end() && is_carried_out(run)) {
    TrainedRun there = read_result(run.folder / kResultFile, task_);
    there.seed = run.config.train.seed;
    there.history = read_history(run.folder, task_);
    found = known_.emplace(run.folder, std::move(there)).first;
  }
  return found == known_.end() ? nullptr : &found->second;
}

TrainedRun Runs::train_anew(const PlannedRun& run, const std::string& title) const {
  TrainedRun trained;
  trained.seed = run.config.train.seed;
  const auto finish = [&] {
    trained.history = read_history(run.folder, task_);
    trained.machine = describe_machine(run.config.train);
    trained.program = program();
    trained.finished = now();
    const bool leads = group_ == nullptr || group_->leads();
    if (leads && !trained.result.interrupted) {
      write_result(trained, task_, run.folder / kResultFile);
    }
  };
  try {
    train::train({.config = run.config,
                  .out = run.folder,
                  .resume = true,
                  .cache = cache_,
                  .title = title,
                  .group = group_,
                  .begins =
                      [&] {
                        if (is_carried_out(run)) {  // another process has come to its end just now
                          throw TrainedElsewhere();
                        }
                      },
                  .finished =
                      [&](const train::TrainResult& result) {
                        trained.result = result;
                        finish();  // before another process may take the folder for a run to go on with
                      }});
  } catch (const train::DivergedError& error) {
    log_warning("{}: {}", title, error.what());
    trained.diverged = error.what();
    trained.result.parameters = cost::count_parameters(folder_config(run.folder).model);
    finish();
  }
  if (group_ != nullptr) {
    group_->gather("");  // whether a run has finished is read from its folder
  }
  return trained;
}

}  // namespace headroom::compare
