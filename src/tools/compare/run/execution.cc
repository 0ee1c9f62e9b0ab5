#include "execution.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "checks.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/store/open_model.h"
#include "training/train/loop/train.h"
#include "training/train/record/writer.h"

namespace headroom::compare {
namespace {

// Describes how the run in the folder differs from the planned one; empty if it does not differ or does not exist.
std::string difference_from(const PlannedRun& run) {
  if (!std::filesystem::exists(run.folder / "config.toml")) {
    return "";
  }
  const config::Config there = train::read_run_config(run.folder);
  config::Config here = run.config;
  if (here.vocabulary_follows_tokenizer) {
    here.model.vocabulary_size = there.model.vocabulary_size;
  }
  return first_difference(there, here);
}

}  // namespace

bool is_finished(const PlannedRun& run) {
  return std::filesystem::exists(run.folder / train::kResultFile) &&
         std::filesystem::exists(run.folder / "config.toml") && difference_from(run).empty();
}

void check_folder(const PlannedRun& run) {
  const std::string difference = difference_from(run);
  if (!difference.empty()) {
    user_error("{}: holds a run of another configuration ({}); choose another folder or remove it", run.folder.string(),
               difference);
  }
}

const TrainedRun& Runs::train(const PlannedRun& run, const std::string& title) {
  if (const TrainedRun* found = find(run)) {
    log_info("{}: already trained; remove {} to train it again", title, run.folder.string());
    return *found;
  }
  TrainedRun trained = train_or_resume(run, title);
  return known_[run.folder] = std::move(trained);
}

const TrainedRun* Runs::find(const PlannedRun& run) {
  auto found = known_.find(run.folder);
  if (found == known_.end() && is_finished(run)) {
    found = known_.emplace(run.folder, train::read_finished_run(run.folder, run.config, task_)).first;
  }
  return found == known_.end() ? nullptr : &found->second;
}

void Runs::test(const PlannedRun& run, const std::vector<std::string>& files) {
  TrainedRun& trained = known_.at(run.folder);
  const bool best = trained.result.best_step.has_value();
  const store::OpenedModel opened = store::open_model((best ? train::best_file(run.folder) : run.folder).string(), {});
  const config::TrainOptions& options = opened.config().train;
  const auto data = task_.open_evaluation(
      {.config = opened.config(), .tokenizer = opened.checkpoint.tokenizer, .files = files, .cache = cache_});
  if (trained.test.data == data->identity()) {
    return;
  }
  const tasks::Evaluation evaluation = data->evaluate(*opened.model, {.batch_size = options.batch_size,
                                                                      .batch_tokens = options.batch_tokens,
                                                                      .context = opened.context,
                                                                      .show_progress = true,
                                                                      .group = group_});
  if (!evaluation.complete) {
    throw InterruptedError("compare: interrupted while testing; repeat the command to continue");
  }
  trained.test = {.data = data->identity(), .figures = task_.figures_of(evaluation.sums)};
  if (group_->leads()) {
    train::write_test(trained.test, run.folder);
  }
}

double Runs::headline(const PlannedRun& run) {
  const TrainedRun* const trained = find(run);
  return trained == nullptr ? std::numeric_limits<double>::quiet_NaN()
                            : tasks::figure(trained->result.figures(), tasks::headline(task_.figures()).name);
}

std::size_t Runs::best_choice(const PlannedModel& model) {
  std::size_t best = 0;
  double best_figure = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t i = 0; i < model.choices.size(); ++i) {
    const double figure = headline(model.choices[i]);
    if (std::isfinite(figure) &&
        (std::isnan(best_figure) || is_better(tasks::headline(task_.figures()), figure, best_figure))) {
      best = i;
      best_figure = figure;
    }
  }
  return best;
}

bool Runs::have_finished(const Plan& plan) {
  return std::ranges::all_of(plan.models, [&](const PlannedModel& model) {
    bool all = std::ranges::all_of(model.choices, [](const PlannedRun& choice) { return is_finished(choice); });
    for (std::int64_t index = 1; all && index < plan.end_index(); ++index) {
      all = is_finished(with_seed(model.choices[best_choice(model)], index));
    }
    return all;
  });
}

TrainedRun Runs::train_or_resume(const PlannedRun& run, const std::string& title) const {
  try {
    train::TrainResult result = train::train(
        {.config = run.config, .out = run.folder, .resume = true, .cache = cache_, .title = title, .group = group_});
    if (result.interrupted) {
      return {.result = std::move(result)};
    }
  } catch (const train::DivergedError& error) {
    log_warning("{}: {}", title, error.what());
  }
  group_->gather("");  // the leading rank has written the result
  return train::read_finished_run(run.folder, run.config, task_);
}

namespace {

// Runs that are still to be trained.
class RunQueue {
 public:
  RunQueue(const Plan& plan, Runs& runs) : plan_(plan), runs_(runs) {
    for (const PlannedModel& model : plan.models) {
      total_ += model.choices.size() + static_cast<std::size_t>(plan.end_index() - 1);
    }
  }

  void add(const PlannedModel& model, const PlannedRun& run, bool first_seed) {
    const std::string values = model.choices.size() > 1 ? ", " + describe(run.values) : "";
    const std::string seed = first_seed ? "" : fmt::format(", seed {}", run.config.train.seed);
    queue_.push_back({run, fmt::format("{}{}{} ({}/{})", model.name, values, seed, ++added_, total_)});
  }

  // Trains the queued runs. Returns false if interrupted.
  bool train_all() {
    const std::vector<Entry> queue = std::exchange(queue_, {});
    for (std::size_t i = 0; i < queue.size(); ++i) {
      log_time_left(queue.size() - i);
      const auto start = std::chrono::steady_clock::now();
      const bool known = runs_.find(queue[i].run) != nullptr;
      if (runs_.train(queue[i].run, queue[i].title).result.interrupted) {
        return false;
      }
      if (!known) {
        ++trained_;
        seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      }
    }
    return true;
  }

  // Returns whether the model's other runs may follow this one. Records the first run that diverged without permission.
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
  struct Entry {
    PlannedRun run;
    std::string title;
  };

  // Logs the time that the runs trained so far predict for these runs.
  void log_time_left(std::size_t runs) const {
    if (trained_ > 0) {
      log_info("{} left, about {}", counted(runs, "run"),
               format_duration(seconds_ / static_cast<double>(trained_) * static_cast<double>(runs)));
    }
  }

  const Plan& plan_;
  Runs& runs_;
  std::vector<Entry> queue_;
  std::size_t added_ = 0, total_ = 0, trained_ = 0;
  double seconds_ = 0.0;  // of the trained runs
  std::string failure_;
};

}  // namespace

Outcome execute(const Plan& plan, Runs& runs) {
  RunQueue queue(plan, runs);
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      queue.add(model, choice, true);
    }
  }
  if (!queue.train_all()) {
    return {.interrupted = true};
  }
  std::vector<std::pair<const PlannedModel*, const PlannedRun*>> accepted;
  for (const PlannedModel& model : plan.models) {
    const PlannedRun& best = model.choices[runs.best_choice(model)];
    if (queue.accept(model, *runs.find(best))) {
      accepted.emplace_back(&model, &best);
    }
  }
  std::vector<std::pair<const PlannedModel*, PlannedRun>> others;
  for (std::int64_t index = 1; index < plan.end_index(); ++index) {
    for (const auto& [model, best] : accepted) {
      others.emplace_back(model, with_seed(*best, index));
      queue.add(*model, others.back().second, false);
    }
  }
  if (!queue.train_all()) {
    return {.interrupted = true};
  }
  for (const auto& [model, run] : others) {
    queue.accept(*model, *runs.find(run));
  }
  return {.failure = queue.failure()};
}

}  // namespace headroom::compare
