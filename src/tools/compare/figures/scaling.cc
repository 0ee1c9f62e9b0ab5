#include "scaling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "statistics.h"
#include "training/cost/cost.h"

namespace headroom::compare {
namespace {

std::vector<double> logarithms(const std::vector<double>& values) {
  std::vector<double> all;
  all.reserve(values.size());
  for (const double value : values) {
    all.push_back(std::log(value));
  }
  return all;
}

std::size_t seeds_of(const ScaledFamily& family) {
  std::size_t seeds = std::numeric_limits<std::size_t>::max();
  for (const ScaledModel& model : family.models) {
    seeds = std::min(seeds, model.losses.size());
  }
  return family.models.empty() ? 0 : seeds;
}

// The line through one seed of each size.
PowerLaw law_of_seed(const ScaledFamily& family, std::size_t seed) {
  std::vector<double> flops, losses;
  for (const ScaledModel& model : family.models) {
    flops.push_back(model.flops);
    losses.push_back(model.losses[seed]);
  }
  return fit_power_law(flops, losses);
}

bool can_be_a_loss(double loss) {
  return std::isfinite(loss) && loss > 0.0;
}

void fit_family(ScaledFamily& family) {
  std::erase_if(family.models, [](const ScaledModel& model) {
    return model.losses.empty() || !std::all_of(model.losses.begin(), model.losses.end(), can_be_a_loss);
  });
  std::stable_sort(family.models.begin(), family.models.end(),
                   [](const ScaledModel& a, const ScaledModel& b) { return a.flops < b.flops; });
  if (family.models.empty() || !(family.models.front().flops < family.models.back().flops)) {
    family.unfitted = family.name + " has no line: fewer than two of its sizes came to a finite loss.";
    return;
  }
  std::vector<double> flops, losses;
  for (const ScaledModel& model : family.models) {
    flops.push_back(model.flops);
    losses.push_back(model.loss());
  }
  const PowerLaw law = fit_power_law(flops, losses);
  bool falls = law.exponent > 0.0;
  for (std::size_t seed = 0; seed < seeds_of(family); ++seed) {
    falls = falls && law_of_seed(family, seed).exponent > 0.0;
  }
  if (!falls) {
    family.unfitted = family.name + " has no line: its loss does not fall with compute in every seed.";
    return;
  }
  family.law = law;
  for (const ScaledModel& model : family.models) {
    family.residual = std::max(family.residual, std::abs(model.loss() / law.loss(model.flops) - 1.0));
  }
}

// The losses along a family's line, between its smallest and its largest model.
struct Reach {
  double low, high;
};

Reach reach_of(const ScaledFamily& family) {
  return {family.law.loss(family.models.back().flops), family.law.loss(family.models.front().flops)};
}

// Of so many seeds' logarithms of the compute that the first needs, and that another needs.
Saving saving_of(double loss, bool extrapolated, const std::vector<double>& first, const std::vector<double>& other) {
  std::vector<double> differences;
  for (std::size_t seed = 0; seed < first.size(); ++seed) {
    differences.push_back(first[seed] - other[seed]);
  }
  Saving saving{
      .loss = loss, .ratio = std::exp(mean(differences)), .low = {}, .high = {}, .extrapolated = extrapolated};
  if (const std::optional<Interval> interval = paired_difference(first, other)) {
    saving.low = std::exp(interval->low);
    saving.high = std::exp(interval->high);
  }
  return saving;
}

Saving saving_of(const ScaledFamily& family, const ScaledFamily& first) {
  const Reach mine = reach_of(family), others = reach_of(first);
  const double low = std::max(mine.low, others.low), high = std::min(mine.high, others.high);
  const double loss = std::sqrt(low * high);
  std::vector<double> flops, first_flops;
  for (std::size_t seed = 0; seed < std::min(seeds_of(family), seeds_of(first)); ++seed) {
    flops.push_back(law_of_seed(family, seed).flops(loss));
    first_flops.push_back(law_of_seed(first, seed).flops(loss));
  }
  return saving_of(loss, low > high, logarithms(first_flops), logarithms(flops));
}

// As the paper has it: the first family's line, at the loss of a model of another.
Saving saving_of(const ScaledModel& model, const ScaledFamily& first) {
  std::vector<double> flops, first_flops;
  for (std::size_t seed = 0; seed < std::min(model.losses.size(), seeds_of(first)); ++seed) {
    flops.push_back(model.flops);
    first_flops.push_back(law_of_seed(first, seed).flops(model.losses[seed]));
  }
  const Reach reach = reach_of(first);
  const bool beyond = model.loss() < reach.low || model.loss() > reach.high;
  return saving_of(model.loss(), beyond, logarithms(first_flops), logarithms(flops));
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
    fit_family(family);
  }
  for (std::size_t f = 1; f < families.size() && families.front().unfitted.empty(); ++f) {
    ScaledFamily& family = families[f];
    if (family.unfitted.empty()) {
      family.saving = saving_of(family, families.front());
    }
    for (ScaledModel& model : family.models) {
      model.saving = saving_of(model, families.front());
    }
  }
  return families;
}

Scaling scaling_of(const std::vector<ComparedRun>& runs) {
  Scaling families;
  for (const ComparedRun& run : runs) {
    const std::optional<double> flops = run.family.empty() ? std::nullopt : cost::training_flops(run.config);
    if (!flops) {
      continue;
    }
    auto family = std::find_if(families.begin(), families.end(),
                               [&](const ScaledFamily& known) { return known.name == run.family; });
    if (family == families.end()) {
      family = families.insert(families.end(), ScaledFamily{.name = run.family});
    }
    family->models.push_back(
        {.name = run.name, .flops = *flops, .losses = run.over_seeds("loss"), .saving = std::nullopt});
  }
  return fit_families(std::move(families));
}

}  // namespace headroom::compare
