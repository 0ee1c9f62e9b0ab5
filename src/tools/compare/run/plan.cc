#include "plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "training/train/loop/step_time.h"
#include "training/train/record/run_folder.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kLongestName = 120;  // of a folder name, bytes

// Returns the variations with current names of keys, and with values formatted as in `config`: 0.0003 for 3e-4. Throws
// UserError if the config cannot take them.
std::vector<Variation> canonical(const std::vector<Variation>& variations, const config::Config& config,
                                 std::string_view option) {
  std::vector<Variation> all;
  for (const Variation& variation : variations) {
    Variation& one = all.emplace_back();
    for (const std::string& value : variation.values) {
      config::Config changed = config;
      one.key = config::set_key(changed, variation.key + "=" + value, option);
      std::string text = config::value_of(changed, one.key);
      if (std::ranges::find(one.values, text) != one.values.end()) {
        user_error("{}: {}: {} is named twice", option, one.key, text);
      }
      one.values.push_back(std::move(text));
    }
    if (one.key == "train.seed") {
      user_error("{}: train.seed cannot be tuned or varied; use --seeds N", option);
    }
    if (std::ranges::count(all, one.key, &Variation::key) > 1) {
      user_error("{}: {}: is given twice; list all its values at once", option, one.key);
    }
  }
  return all;
}

std::int64_t checked_seeds(std::int64_t seeds, const char* command) {
  if (seeds < 1 || seeds > kMostSeeds) {
    user_error("{}: seeds must be between 1 and {}, got {}", command, kMostSeeds, seeds);
  }
  return seeds;
}

// Returns "learning_rate=0.001,...": a folder name that is unique for the values.
std::string folder_name(Values values) {
  std::ranges::sort(values);
  std::string exact;
  for (const auto& [key, value] : values) {
    exact += fmt::format("{}{}={}", exact.empty() ? "" : ",", key, value);
  }
  std::string name = plain_name(exact).substr(0, kLongestName);
  if (name != exact) {
    name += "-" + sha256_of(exact).substr(0, 8);
  }
  return name;
}

// Returns the run with `values`, which come from the command-line option `option`.
PlannedRun with_values(const NamedConfig& model, const std::filesystem::path& folder, const Values& values,
                       const std::string& option) {
  PlannedRun run{.values = values, .config = model.config, .folder = folder};
  if (!values.empty()) {
    const std::vector<std::string> assignments =
        transformed(values, [](const auto& entry) { return entry.first + "=" + entry.second; });
    config::change(run.config, assignments, option);
    config::check(run.config, fmt::format("{} with {}", model.name, describe(values)));
    run.folder /= folder_name(values);
  }
  return run;
}

}  // namespace

std::vector<Values> combinations(const std::vector<Variation>& variations) {
  std::vector<Values> all = {{}};
  for (const Variation& variation : variations) {
    std::vector<Values> longer;
    for (const Values& values : all) {
      for (const std::string& value : variation.values) {
        longer.push_back(values);
        longer.back().emplace_back(variation.key, value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string short_key(const std::string& key, const std::vector<std::string>& keys) {
  const auto last = [](const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  const auto alike = std::ranges::count_if(keys, [&](const std::string& other) { return last(other) == last(key); });
  return alike > 1 ? key : last(key);
}

std::string describe(const Values& values) {
  std::vector<std::string> keys;
  std::string text;
  for (const auto& [key, value] : values) {
    keys.push_back(key);
  }
  for (const auto& [key, value] : values) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", short_key(key, keys), value);
  }
  return text;
}

std::string plain_name(std::string text) {
  for (char& c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    c = plain || std::string_view("._=,+-").find(c) != std::string_view::npos ? c : '_';
  }
  return text;
}

std::vector<std::string> keys_of(const std::vector<Variation>& variations) {
  return transformed(variations, &Variation::key);
}

Plan plan_comparison(const CompareRequest& request) {
  Plan plan{.models = {}, .variations = {}, .seeds = checked_seeds(request.seeds, "compare")};
  for (const NamedConfig& named : request.configs) {
    PlannedModel& model = plan.models.emplace_back(PlannedModel{named.name, {}, named.family});
    plan.variations = canonical(request.variations, named.config, "compare: --tune");
    for (const Values& values : combinations(plan.variations)) {
      model.choices.push_back(with_values(named, request.out / named.name, values, "--tune"));
    }
    plan.tuned_apart = plan.seeds > 1 && model.choices.size() > 1;
  }
  return plan;
}

Plan plan_sweep(const CompareRequest& request) {
  if (request.variations.empty()) {
    user_error("sweep: --vary: nothing to vary; give a key with its values, as in train.learning_rate=3e-4,1e-3");
  }
  Plan plan{.models = {},
            .variations = canonical(request.variations, request.configs.front().config, "sweep: --vary"),
            .seeds = checked_seeds(request.seeds, "sweep"),
            .may_diverge = true,
            .command = "sweep"};
  for (const Values& values : combinations(plan.variations)) {
    plan.models.push_back({describe(values), {with_values(request.configs.front(), request.out, values, "--vary")}});
  }
  return plan;
}

namespace {

// Returns the seconds that training takes with all seeds and values, judging by first steps of `measuring` seconds.
double training_seconds(const CompareRequest& request, double measuring) {
  const Plan plan = plan_comparison(request);
  double seconds = 0.0;
  for (std::size_t i = 0; i < plan.models.size(); ++i) {
    const config::Config& config = request.configs[i].config;
    const auto runs = std::ssize(plan.models[i].choices) - 1 + plan.end_index();
    seconds += config.train.steps == 0 ? 0.0
                                       : train::measure_step_time(config, request.cache, measuring, plan.command) *
                                             static_cast<double>(config.train.steps * runs);
  }
  return seconds;
}

}  // namespace

void set_steps_within(double seconds, CompareRequest& request, const CompareRequest* further, std::int64_t least) {
  constexpr double kFurther = 1.2;  // factor for validations, checkpoints and samples
  constexpr double kMeasuring = 2.0, kShare = 0.05;
  const auto steps_of = [](const NamedConfig& named) { return named.config.train.steps; };
  const auto longest = std::ranges::max_element(request.configs, {}, steps_of);
  const auto place = static_cast<std::size_t>(longest - request.configs.begin());
  const std::filesystem::path begun = plan_comparison(request).models[place].choices.front().folder / "config.toml";
  const std::int64_t whole = longest->config.train.steps;
  std::int64_t steps = whole;
  if (std::filesystem::exists(begun)) {
    steps = train::read_run_config(begun.parent_path()).train.steps;
  } else if (whole > 0) {
    const auto start = std::chrono::steady_clock::now();
    const double measuring = std::min(kMeasuring, kShare * seconds / static_cast<double>(request.configs.size()));
    const double all = kFurther * training_seconds(request, measuring);
    const double others = further == nullptr ? 0.0 : kFurther * training_seconds(*further, measuring);
    // Measuring prepares the data.
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() + others;
    const double fits = std::floor((seconds - spent) / all * static_cast<double>(whole));
    steps = std::clamp(static_cast<std::int64_t>(std::clamp(fits, 0.0, 1e15)), std::min(least, whole), whole);
    const double needed = all / static_cast<double>(whole);  // for each step
    if (steps < 1) {
      user_error("compare: --budget: {} is too short: one step of every run takes {} with its preparation; give more",
                 format_duration(seconds), format_duration(spent + needed));
    }
    log_info("up to {} of training for each of {} models; about {} in all on this machine", counted(steps, "step"),
             request.configs.size(), format_duration(spent + needed * static_cast<double>(steps)));
  }
  for (NamedConfig& named : request.configs) {
    const double share = static_cast<double>(steps) / static_cast<double>(std::max<std::int64_t>(whole, 1));
    const std::int64_t own = std::llround(share * static_cast<double>(steps_of(named)));
    train::set_steps(named.config.train, std::max(own, std::min<std::int64_t>(steps_of(named), 1)));
  }
}

void check_seeds(const Plan& plan) {
  for (const PlannedModel& model : plan.models) {
    for (const PlannedRun& choice : model.choices) {
      if (choice.config.train.seed > kMostSeed - (plan.end_index() - 1)) {
        user_error("{}: --seeds: the last of {} seeds from train.seed = {} is above {}", plan.command, plan.end_index(),
                   choice.config.train.seed, kMostSeed);
      }
    }
  }
}

PlannedRun with_seed(const PlannedRun& first, std::int64_t index) {
  PlannedRun run = first;
  if (index > 0) {
    run.config.train.seed += index;
    run.folder /= fmt::format("seed_{}", run.config.train.seed);
  }
  return run;
}

}  // namespace headroom::compare
