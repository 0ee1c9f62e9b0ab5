#include "carry_out.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "tools/compare/figures/summary.h"
#include "tools/compare/report/markup.h"

namespace headroom::compare {
namespace {

constexpr auto kLook = std::chrono::milliseconds(500);  // between looks at what other processes do

class Training {
 public:
  Training(const Plan& plan, Runs& runs) : plan_(plan), runs_(runs) {
    for (const PlannedModel& model : plan.models) {
      total_ += model.choices.size() + static_cast<std::size_t>(plan.seeds - 1);
    }
  }

  void plan(const PlannedModel& model, const PlannedRun& run, bool first_seed) {
    const std::string values = model.choices.size() > 1 ? ", " + describe(run.values) : "";
    const std::string seed = first_seed ? "" : fmt::format(", seed {}", run.config.train.seed);
    planned_.push_back({run, fmt::format("{}{}{} ({}/{})", model.name, values, seed, ++begun_, total_)});
  }

  // Trains what is planned, but for what other processes of the same command train meanwhile, for which it waits. False
  // where it was interrupted.
  bool work_off() {
    bool waits = false;
    while (!planned_.empty()) {
      std::vector<Planned> taken;
      for (const Planned& planned : planned_) {
        const TrainedRun* run = runs_.train(planned.run, planned.title);
        if (run == nullptr) {
          taken.push_back(planned);
        } else if (run->result.interrupted) {
          return false;
        }
      }
      if (taken.size() == planned_.size()) {
        if (!std::exchange(waits, true)) {
          log_info("{}: waiting for {} that other processes train", planned_.front().title,
                   counted(taken.size(), "run"));
        }
        if (interrupted()) {
          return false;
        }
        std::this_thread::sleep_for(kLook);
      }
      planned_ = std::move(taken);
    }
    return true;
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
  struct Planned {
    PlannedRun run;
    std::string title;
  };

  std::vector<Planned> planned_;
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
      training.plan(model, choice, true);
    }
  }
  if (!training.work_off()) {
    return {.interrupted = true};
  }
  for (const PlannedModel& model : plan.models) {
    if (training.accept(model, *runs.find(model.choices[best_choice(model, runs, task)]))) {
      sound.push_back(&model);
    }
  }
  for (std::int64_t index = 1; index < plan.seeds; ++index) {
    for (const PlannedModel* model : sound) {
      training.plan(*model, with_seed(model->choices[best_choice(*model, runs, task)], index), false);
    }
  }
  if (!training.work_off()) {
    return {.interrupted = true};
  }
  for (std::int64_t index = 1; index < plan.seeds; ++index) {
    for (const PlannedModel* model : sound) {
      training.accept(*model, *runs.find(with_seed(model->choices[best_choice(*model, runs, task)], index)));
    }
  }
  return {.failure = training.failure()};
}

}  // namespace headroom::compare
