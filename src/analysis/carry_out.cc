#include "carry_out.h"

#include <fmt/format.h>

#include <cstddef>

#include "fairness.h"
#include "headroom/core/error.h"
#include "summary.h"

namespace headroom::analysis {
namespace {

class Training {
 public:
  Training(const Plan& plan, Runs& runs) : plan_(plan), runs_(runs) {
    for (const PlannedModel& model : plan.models) {
      total_ += model.choices.size() + static_cast<std::size_t>(plan.seeds - 1);
    }
  }

  // Whether it was not interrupted.
  bool train(const PlannedModel& model, const PlannedRun& run, bool first_seed) {
    const bool tuned = model.choices.size() > 1;
    const std::string values = tuned ? ", " + describe(run.values) : "";
    const std::string seed = first_seed ? "" : fmt::format(", seed {}", run.config.train.seed);
    const std::string title = fmt::format("{}{}{} ({}/{})", model.name, values, seed, ++begun_, total_);
    const bool may_diverge = plan_.may_diverge || (tuned && first_seed);
    return !runs_.train(run, {.title = title, .may_diverge = may_diverge}).result.interrupted;
  }

 private:
  const Plan& plan_;
  Runs& runs_;
  std::size_t begun_ = 0, total_ = 0;
};

}  // namespace

void check_choices(const Plan& plan) {
  std::vector<NamedConfig> all;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      const bool tuned = model.choices.size() > 1;
      all.push_back(
          {tuned ? fmt::format("{} with {}", model.name, describe(choice.values)) : model.name, choice.config});
    }
  }
  refuse_unlike(all);
}

bool check_folders(const Plan& plan) {
  bool finished = true;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      for (std::int64_t index = 0; index < plan.seeds; ++index) {
        const PlannedRun run = with_seed(choice, index);
        check_folder(run);
        finished = finished && is_finished(run.folder);
      }
    }
  }
  return finished;
}

bool carry_out(const Plan& plan, Runs& runs, const tasks::Task& task) {
  Training training(plan, runs);
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      if (!training.train(model, choice, true)) {
        return false;
      }
    }
    const TrainedRun* best = runs.find(model.choices[best_choice(model, runs, task)]);
    if (!plan.may_diverge && !best->diverged.empty()) {
      fail("{}: diverged with every value tried: {}", model.name, best->diverged);
    }
  }
  for (std::int64_t index = 1; index < plan.seeds; ++index) {
    for (const PlannedModel& model : plan.models) {
      if (!training.train(model, with_seed(model.choices[best_choice(model, runs, task)], index), false)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace headroom::analysis
