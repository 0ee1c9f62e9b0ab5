#include "scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/core/error.h"
#include "result.h"
#include "training/cost/cost.h"
#include "training/train/loop/plan.h"

namespace headroom::compare {
namespace {

std::vector<double> logarithms(const std::vector<double>& values) {
  return transformed(values, [&](const double value) { return std::log(value); });
}

std::size_t seeds_of(const ScaledFamily& family) {
  std::size_t seeds = std::numeric_limits<std::size_t>::max();
  for (const ScaledModel& model : family.models) {
    seeds = std::min(seeds, model.losses.size());
  }
  return family.models.empty() ? 0 : seeds;
}

// Fits the line through value_of(model) of every size, against their compute with this seed.
template <class ValueOf>
PowerLaw law_of_seed(const ScaledFamily& family, std::size_t seed, const ValueOf& value_of) {
  std::vector<double> flops, values;
  for (const ScaledModel& model : family.models) {
    flops.push_back(model.flops_of(seed));
    values.push_back(value_of(model));
  }
  return fit_power_law(flops, values);
}

PowerLaw law_of_seed(const ScaledFamily& family, std::size_t seed) {
  return law_of_seed(family, seed, [seed](const ScaledModel& model) { return model.losses[seed]; });
}

// Fits the line through the mean losses of every size.
PowerLaw law_of_means(const ScaledFamily& family) {
  return fit_power_law(transformed(family.models, [](const ScaledModel& model) { return model.flops; }),
                       transformed(family.models, [](const ScaledModel& model) { return model.loss(); }));
}

// Returns the training time for an amount of compute, with the speeds measured with this seed.
double seconds_for(double flops, const ScaledFamily& family, std::size_t seed) {
  return law_of_seed(family, seed, [seed](const ScaledModel& model) { return model.seconds[seed]; }).loss(flops);
}

bool is_timed(const ScaledModel& model) {
  return model.seconds.size() == model.losses.size() &&
         std::ranges::all_of(model.seconds, [](double seconds) { return seconds > 0.0; });
}

bool is_timed(const ScaledFamily& family) {
  return std::ranges::all_of(family.models, [](const ScaledModel& model) { return is_timed(model); });
}

bool can_be_a_loss(double loss) {
  return std::isfinite(loss) && loss > 0.0;
}

bool has_losses(const ScaledModel& model) {
  return !model.losses.empty() && model.beats_guessing && std::ranges::all_of(model.losses, can_be_a_loss);
}

// `family.models` must be sorted by compute.
void fit_family(ScaledFamily& family) {
  std::erase_if(family.models, std::not_fn(has_losses));
  if (family.models.empty() || !(family.models.front().flops < family.models.back().flops)) {
    family.unfitted =
        family.name + " has no line: fewer than two of its sizes reached a finite loss below that of guessing.";
    return;
  }
  const PowerLaw law = law_of_means(family);
  bool falls = law.exponent > 0.0;
  for (std::size_t seed = 0; seed < seeds_of(family); ++seed) {
    falls = falls && law_of_seed(family, seed).exponent > 0.0;
  }
  if (!falls) {
    family.unfitted = family.name + " has no line: its loss does not fall with compute for every seed.";
    return;
  }
  const double error = max_over(family.models, &ScaledModel::error, 0.0), best = family.models.back().loss();
  if (law.flops(best) > kMostUncertain * law.flops(best + kErrors * error)) {
    family.unfitted = fmt::format(
        "{} has no line: the standard error of its losses, {:.1g}, leaves the compute for a loss of {} uncertain by "
        "more than a factor of {:.0f}.",
        family.name, error, format_decimal(best, 4), kMostUncertain);
    return;
  }
  family.law = law;
  for (const ScaledModel& model : family.models) {
    family.residual = std::max(family.residual, std::abs(model.loss() / law.loss(model.flops) - 1.0));
  }
}

// The range of losses along a family's line, from its largest to its smallest model.
struct LossRange {
  double low, high;
};

LossRange range_of(const ScaledFamily& family) {
  return {family.law.loss(family.models.back().flops), family.law.loss(family.models.front().flops)};
}

void compare_families(ScaledFamily& family, const ScaledFamily& first) {
  const LossRange own = range_of(family), other = range_of(first);
  const double low = std::max(own.low, other.low), high = std::min(own.high, other.high);
  const double loss = std::sqrt(low * high);
  const bool timed = is_timed(family) && is_timed(first);
  std::vector<double> flops, first_flops, seconds, first_seconds;
  for (std::size_t seed = 0; seed < std::min(seeds_of(family), seeds_of(first)); ++seed) {
    flops.push_back(law_of_seed(family, seed).flops(loss));
    first_flops.push_back(law_of_seed(first, seed).flops(loss));
    if (timed) {
      seconds.push_back(seconds_for(flops.back(), family, seed));
      first_seconds.push_back(seconds_for(first_flops.back(), first, seed));
    }
  }
  family.saving = saving_of(loss, low > high, first_flops, flops);
  family.speedup = saving_of(loss, low > high, first_seconds, seconds);
}

// Evaluates the first family's line at the loss of another family's model, as in the paper.
void compare_model(ScaledModel& model, const ScaledFamily& first) {
  const LossRange range = range_of(first);
  const bool beyond = model.loss() < range.low || model.loss() > range.high;
  const bool timed = is_timed(model) && is_timed(first);
  std::vector<double> flops, first_flops, seconds, first_seconds;
  for (std::size_t seed = 0; seed < std::min(model.losses.size(), seeds_of(first)); ++seed) {
    flops.push_back(model.flops_of(seed));
    first_flops.push_back(law_of_seed(first, seed).flops(model.losses[seed]));
    if (timed) {
      seconds.push_back(model.seconds[seed]);
      first_seconds.push_back(seconds_for(first_flops.back(), first, seed));
    }
  }
  model.saving = saving_of(model.loss(), beyond, first_flops, flops);
  model.speedup = saving_of(model.loss(), beyond, first_seconds, seconds);
}

// Compares models of the same rank in compute. Must be called before fit_family(), which removes models without a loss.
void add_improvements(ScaledFamily& family, const ScaledFamily& first) {
  for (std::size_t i = 0; family.models.size() == first.models.size() && i < family.models.size(); ++i) {
    if (!has_losses(family.models[i]) || !has_losses(first.models[i])) {
      continue;
    }
    const std::vector<double>&own = family.models[i].losses, &others = first.models[i].losses;
    const double single = others.front() - own.front();
    family.models[i].improvement =
        paired_difference(others, own).value_or(Interval{.mean = single, .low = single, .high = single});
  }
}

}  // namespace

double PowerLaw::loss(double flops) const {
  return coefficient * std::pow(flops, -exponent);
}

double PowerLaw::flops(double loss) const {
  return std::pow(coefficient / loss, 1.0 / exponent);
}

double ScaledModel::loss() const {
  return std::exp(mean(logarithms(losses)));
}

std::optional<Saving> saving_of(double loss, bool extrapolated, const std::vector<double>& first,
                                const std::vector<double>& other) {
  if (first.empty()) {
    return std::nullopt;
  }
  const std::vector<double> ours = logarithms(first), theirs = logarithms(other);
  std::vector<double> differences;
  std::ranges::transform(ours, theirs, std::back_inserter(differences), std::minus<>());
  Saving saving{
      .loss = loss, .ratio = std::exp(mean(differences)), .low = {}, .high = {}, .extrapolated = extrapolated};
  if (const std::optional<Interval> interval = paired_difference(ours, theirs)) {
    saving.low = std::exp(interval->low);
    saving.high = std::exp(interval->high);
  }
  return saving;
}

PowerLaw fit_power_law(const std::vector<double>& flops, const std::vector<double>& losses) {
  const std::vector<double> x = logarithms(flops), y = logarithms(losses);
  const double x_mean = mean(x), y_mean = mean(y);
  double products = 0.0, squares = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    products += (x[i] - x_mean) * (y[i] - y_mean);
    squares += (x[i] - x_mean) * (x[i] - x_mean);
  }
  const double exponent = -products / squares;
  return {.coefficient = std::exp(y_mean + exponent * x_mean), .exponent = exponent};
}

Scaling fit_families(Scaling families) {
  for (ScaledFamily& family : families) {
    std::ranges::stable_sort(family.models, {}, &ScaledModel::flops);
  }
  for (std::size_t f = 1; f < families.size(); ++f) {
    add_improvements(families[f], families.front());
  }
  for (ScaledFamily& family : families) {
    fit_family(family);
  }
  for (std::size_t f = 1; f < families.size() && families.front().unfitted.empty(); ++f) {
    ScaledFamily& family = families[f];
    if (family.unfitted.empty()) {
      compare_families(family, families.front());
    }
    for (ScaledModel& model : family.models) {
      compare_model(model, families.front());
    }
  }
  return families;
}

namespace {

std::vector<double> seconds_of(const ComparedRun& run) {
  return transformed(run.trained, [&](const TrainedRun& trained) { return trained.result.seconds; });
}

}  // namespace

bool beats_guessing(const ComparedRun& run) {
  const double guessing = train::guessing_loss(run.config.model);
  return std::ranges::none_of(run.trained, [&](const TrainedRun& trained) {
    const tasks::Figures figures = trained.result.figures();
    const double error = tasks::figure(figures, std::string(tasks::kLossError));
    return tasks::figure(figures, "loss") + (std::isfinite(error) ? kErrors * error : 0.0) >= guessing;
  });
}

ScaledModel scaled_model(const ComparedRun& run, double flops, std::size_t style) {
  ScaledModel model{.name = run.name,
                    .flops = flops,
                    .losses = run.over_seeds("loss"),
                    .beats_guessing = beats_guessing(run),
                    .seconds = seconds_of(run),
                    .style = style};
  for (const double error : run.over_seeds(std::string(tasks::kLossError))) {
    model.error = std::isfinite(error) ? std::max(model.error, error) : model.error;
  }
  const auto steps = static_cast<double>(run.config.train.steps);
  if (run.config.train.seconds > 0.0) {
    model.flops_of_seeds = transformed(run.trained, [&](const TrainedRun& trained) {
      return flops * static_cast<double>(trained.result.steps) / steps;
    });
    model.flops = std::exp(mean(logarithms(model.flops_of_seeds)));
  }
  return model;
}

Scaling scaling_of(const std::vector<ComparedRun>& runs) {
  Scaling families;
  for (const ComparedRun& run : runs) {
    const std::optional<double> flops = run.family.empty() ? std::nullopt : cost::training_flops(run.config);
    if (!flops) {
      continue;
    }
    auto family = std::ranges::find(families, run.family, &ScaledFamily::name);
    if (family == families.end()) {
      family = families.insert(families.end(), ScaledFamily{.name = run.family});
    }
    family->models.push_back(scaled_model(run, *flops, static_cast<std::size_t>(&run - runs.data())));
  }
  return fit_families(std::move(families));
}

namespace {

struct NamedFamily {
  std::string name;
  std::vector<std::string> configs;
};

// Parses "dense=a.toml,b.toml".
NamedFamily parse_family(const std::string& text) {
  const std::size_t equals = text.find('=');
  NamedFamily family{.name = text.substr(0, equals), .configs = {}};
  for (std::size_t begin = equals; begin < text.size();) {  // at "=" or a comma
    const std::size_t end = std::min(text.find(',', begin + 1), text.size());
    family.configs.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end;
  }
  const bool empty = std::ranges::any_of(family.configs, [](const std::string& config) { return config.empty(); });
  if (family.name.empty() || family.configs.empty() || empty) {
    user_error("compare: --family {}: must be NAME=CONFIG,CONFIG,..., as in dense=small.toml,large.toml", text);
  }
  return family;
}

}  // namespace

std::vector<NamedConfig> load_families(const std::vector<std::string>& families,
                                       const std::vector<std::string>& overrides) {
  std::vector<std::string> paths, names;
  for (const std::string& text : families) {
    const NamedFamily family = parse_family(text);
    if (std::ranges::find(names, family.name) != names.end()) {
      user_error("compare: --family {}: is given twice; list all its configs at once", family.name);
    }
    paths.insert(paths.end(), family.configs.begin(), family.configs.end());
    names.resize(paths.size(), family.name);
  }
  std::vector<NamedConfig> configs = load_configs(paths, overrides);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    configs[i].family = names[i];
  }
  return configs;
}

void check_families(const std::vector<NamedConfig>& configs) {
  std::vector<std::pair<std::string, std::set<double>>> families;  // name and distinct amounts of compute
  for (const NamedConfig& named : configs) {
    if (named.family.empty()) {
      continue;
    }
    const std::optional<double> flops = cost::training_flops(named.config);
    if (!flops) {
      user_error(
          "compare: --family {}: {} reads sentences of different lengths, whose compute is not counted, so no line can "
          "be fitted",
          named.family, named.name);
    }
    auto family = std::ranges::find_if(families, [&](const auto& known) { return known.first == named.family; });
    if (family == families.end()) {
      family = families.insert(families.end(), {named.family, {}});
    }
    family->second.insert(*flops);
  }
  if (families.size() == 1) {
    user_error("compare: --family {}: is the only family; give at least two", families.front().first);
  }
  for (const auto& [name, amounts] : families) {
    if (amounts.size() < 2) {
      user_error("compare: --family {}: needs models with at least two different amounts of training compute, got {}",
                 name, amounts.size());
    }
  }
}

}  // namespace headroom::compare
