// The command cost --time; the front has the rest of the command, which needs no tensors.
#include <fmt/ranges.h>

#include <filesystem>

#include "engine.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/models/compute.h"
#include "training/cost/cost.h"
#include "training/cost/report.h"
#include "training/cost/scale.h"
#include "training/tasks/task.h"
#include "training/train/loop/step_time.h"
#include "training/train/loop/train.h"

namespace headroom::cli {

namespace {

// A model and the multiply-accumulates per second at which this machine trains it.
struct Fit {
  config::Config config;
  double rate = 0.0;
};

// Finds the size by the rate of the config, and again by the rate of that size: larger models train at a higher rate.
Fit fit_to_time(config::Config& config, const std::string& name, double seconds) {
  constexpr double kMeasuring = 3.0;  // seconds for each rate
  constexpr int kRounds = 2;
  config.train.precision = models::resolve(config.train.precision, models::resolve(config.train.device));
  train::check_machine(config);
  tasks::TaskData data = tasks::task_for(config, "cost").open(config, cache_folder());
  config = train::with_vocabulary_of(std::move(config), data.tokenizer.get());
  models::set_threads(config.train.threads);
  Fit fit{.config = config};
  for (int round = 0; round < kRounds; ++round) {
    train::check_machine(fit.config);
    const double step = train::measure_step_time(fit.config, data, kMeasuring, "cost");
    fit.rate = static_cast<double>(cost::executed_cost(fit.config.model, config.whole_sequences()).step_macs) / step;
    const std::optional<config::Config> size = cost::largest_within(config, fit.rate * seconds);
    if (!size) {
      user_error("cost: --time: no size of {} between {} and {} times its widths takes {}; give another config or time",
                 name, cost::kSmallestFactor, cost::kLargestFactor, format_duration(seconds));
    }
    fit.config = *size;
  }
  return fit;
}

// Returns the keys in which `config` differs from `base`, as for --set.
std::vector<std::string> changes(const config::Config& config, const config::Config& base) {
  std::vector<std::string> changed;
  const auto is = config::flatten(config), was = config::flatten(base);
  for (std::size_t i = 0; i < is.size(); ++i) {
    if (is[i] != was[i]) {
      changed.push_back(is[i].first + "=" + is[i].second);
    }
  }
  return changed;
}

}  // namespace

int run(const CostInTime& command, const EngineRequest& request) {
  catch_interrupts();
  Json list = Json::array();
  std::string text;
  for (const std::string& name : command.configs) {
    config::Config base = config::load_run_config(name, command.set);
    if (base.model.kind != config::ModelKind::language_model || !base.train.start_from.empty()) {
      user_error("cost: --time: {}: needs a language model trained from scratch, got {}", name,
                 base.train.start_from.empty() ? config::name_of(base.model.kind) : "train.start_from");
    }
    Fit fit = fit_to_time(base, name, command.seconds);
    const std::int64_t parameters = cost::count_parameters(fit.config.model);
    const std::int64_t tokens = cost::kTokensPerParameter * parameters;
    const double tokens_per_second = fit.rate / cost::training_macs_per_token(fit.config);
    fit.config.train.seconds = 0.0;
    train::set_steps(fit.config.train, tokens / (fit.config.train.batch_size * fit.config.model.context_length));
    const std::vector<std::string> set = changes(fit.config, base);
    list.push_back(cost::cost_json(name, fit.config));
    list.back().update({{"seconds", static_cast<double>(tokens) / tokens_per_second},
                        {"tokens", tokens},
                        {"tokens_per_second", tokens_per_second},
                        {"set", set}});
    text += fmt::format(
        "{}: in {} this machine trains {} parameters on {} tokens ({} a parameter, {} tokens/s): --set {}\n", name,
        format_duration(static_cast<double>(tokens) / tokens_per_second), format_count(static_cast<double>(parameters)),
        format_count(static_cast<double>(tokens)), cost::kTokensPerParameter, format_count(tokens_per_second),
        fmt::join(set, " --set "));
  }
  request.output.text(text);
  request.output.document(list);
  return 0;
}

}  // namespace headroom::cli
