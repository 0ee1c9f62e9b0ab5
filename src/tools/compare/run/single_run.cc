#include "single_run.h"

#include "headroom/core/error.h"
#include "runs.h"
#include "tools/compare/figures/history.h"
#include "tools/compare/figures/summary.h"
#include "training/cost/cost.h"

namespace headroom::compare {

CompareResult single_run(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder / "config.toml")) {
    user_error("report: {}: holds neither a training run (config.toml) nor a comparison (comparison.json)",
               folder.string());
  }
  ComparedRun run;
  run.name = std::filesystem::absolute(folder / "x").parent_path().filename().string();
  run.folder = folder;
  run.config = folder_config(folder);
  TrainedRun& trained = run.trained.emplace_back();
  trained.seed = run.config.train.seed;
  trained.history = read_history(folder, run.task());
  if (trained.history.training.empty() && trained.history.validation.empty()) {
    user_error("report: {}: metrics.jsonl holds nothing to show yet", folder.string());
  }
  train::TrainResult& result = trained.result;
  result.validation = trained.history.validation;
  result.parameters = cost::count_parameters(run.config.model);
  if (!trained.history.training.empty()) {
    const train::TrainingPoint& last = trained.history.training.back();
    result.steps = last.step;
    result.train_loss = last.loss;
    result.seconds = last.seconds;
    result.tokens_per_second = last.seconds > 0.0 ? static_cast<double>(last.tokens) / last.seconds : 0.0;
  }
  result.peak_memory_bytes = trained.history.peak_memory_bytes;
  add_costs(run);
  CompareResult shown{.kind = Kind::run, .title = "Training of " + run.name};
  shown.runs.push_back(std::move(run));
  shown.conclusion = conclude(shown.runs);
  return shown;
}

}  // namespace headroom::compare
