#include "carry_out.h"

#include <fmt/format.h>

#include <cstddef>
#include <vector>

#include "summary.h"

namespace headroom::compare {
namespace {

class Training {
 public:
  Training(const Plan& plan, Runs& runs) : plan_(plan), runs_(runs) {
    for (const PlannedModel& model : plan.models) {
      total_ += model.choices.size() + static_cast<std::size_t>(plan.seeds - 1);
    }
  }

  const TrainedRun& train(const PlannedModel& model, const PlannedRun& run, bool first_seed) {
    const std::string values = model.choices.size() > 1 ? ", " + describe(run.values) : "";
    const std::string seed = first_seed ? "" : fmt::format(", seed {}", run.config.train.seed);
    return runs_.train(run, fmt::format("{}{}{} ({}/{})", model.name, values, seed, ++begun_, total_));
  }

  // Whether the model's run is one to continue from. The first that is not is remembered.
  bool accept(const PlannedModel& model, const TrainedRun& run) {
    const bool accepted = plan_.may_diverge || run.diverged.empty();
    if (!accepted && failure_.empty()) {
      failure_ =
          fmt::format("{}: {}{}", model.name,
                      model.choices.size() > 1 ? "diverged with the best of the values tried: " : "", run.diverged);
    }
    return accepted;
  }

  const std::string& failure() const { return failure_; }

 private:
  const Plan& plan_;
  Runs& runs_;
  std::size_t begun_ = 0, total_ = 0;
  std::string failure_;
};

}  // namespace

bool is_carried_out(const Plan& plan, Runs& runs, const tasks::Task& task) {
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      if (!is_carried_out(choice)) {
        return false;
      }
    }
    const PlannedRun& best = model.choices[best_choice(model, runs, task)];
    for (std::int64_t index = 1; index < plan.seeds; ++index) {
      if (!is_carried_out(with_seed(best, index))) {
        return false;
      }
    }
  }
  return true;
}

Outcome carry_out(const Plan& plan, Runs& runs, const tasks::Task& task) {
  Training training(plan, runs);
  std::vector<const PlannedModel*> sound;
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      if (training.train(model, choice, true).result.interrupted) {
        return {.interrupted = true};
      }
    }
    if (training.accept(model, *runs.find(model.choices[best_choice(model, runs, task)]))) {
      sound.push_back(&model);
    }
  }
  for (std::int64_t index = 1; index < plan.seeds; ++index) {
    for (const PlannedModel* model : sound) {
      const PlannedRun& best = model->choices[best_choice(*model, runs, task)];
      const TrainedRun& run = training.train(*model, with_seed(best, index), false);
      if (run.result.interrupted) {
        return {.interrupted = true};
      }
      training.accept(*model, run);
    }
  }
  return {.failure = training.failure()};
}

}  // namespace headroom::compare
