#include "effective_speedup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>

#include "foundation/core/text/format.h"
#include "result.h"
#include "statistics.h"
#include "tools/compare/formatting.h"
#include "tools/compare/run/checks.h"
#include "training/cost/cost.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kFewestPoints = 3;  // of a learning curve from which times are read

struct CurvePoint {
  double seconds, loss;
  double error;  // standard error of the loss; 0 if unknown
};

using Curve = std::vector<CurvePoint>;

double loss_of(const train::ValidationPoint& point) {
  return tasks::figure(point.figures, "loss");
}

Curve curve_of(const TrainedRun& trained) {
  Curve curve;
  for (const train::ValidationPoint& point : train::curve_of(trained.result.validation)) {
    const double loss = loss_of(point);
    const double error = tasks::figure(point.figures, std::string(tasks::kLossError));
    if (point.seconds > 0.0 && std::isfinite(loss) && loss > 0.0) {
      curve.push_back({point.seconds, loss, std::isfinite(error) ? error : 0.0});
    }
  }
  return curve;
}

// Returns the time from which the curve stays at or below the loss, which its last point does. Between two points, the
// curve is a power law of the time. A curve that never was above the loss returns its first time.
double time_to(double loss, const Curve& curve) {
  std::size_t below = curve.size() - 1;
  while (below > 0 && curve[below - 1].loss <= loss) {
    --below;
  }
  const CurvePoint& after = curve[below];
  if (below == 0) {
    return after.seconds;
  }
  const CurvePoint& before = curve[below - 1];
  const double share = std::log(before.loss / loss) / std::log(before.loss / after.loss);
  return before.seconds * std::pow(after.seconds / before.seconds, share);
}

// Whether the errors of the losses leave the time to this loss uncertain by more than kMostUncertain.
bool is_flat(double loss, const Curve& curve) {
  return time_to(loss, curve) > kMostUncertain * time_to(loss + kErrors * curve.back().error, curve);
}

// Returns why the curves of the two give no ratio of times; empty if they do.
std::string why_flat(const ComparedRun& first, const ComparedRun& run) {
  for (std::size_t seed = 0; seed < std::min(first.trained.size(), run.trained.size()); ++seed) {
    const Curve other = curve_of(first.trained[seed]), own = curve_of(run.trained[seed]);
    const double loss = std::max(other.back().loss, own.back().loss);
    for (const auto& [name, curve] : {std::pair(&first.name, &other), std::pair(&run.name, &own)}) {
      if (is_flat(loss, *curve)) {
        return fmt::format(
            "the time in which {} reaches a loss of {} is uncertain by more than a factor of {:.0f}, because its "
            "losses "
            "have a standard error of {:.1g}",
            *name, format_decimal(loss, 4), kMostUncertain, curve->back().error);
      }
    }
  }
  return "";
}

std::optional<Saving> by_curves(const ComparedRun& first, const ComparedRun& run) {
  std::vector<double> first_seconds, seconds, losses;
  for (std::size_t seed = 0; seed < std::min(first.trained.size(), run.trained.size()); ++seed) {
    const Curve other = curve_of(first.trained[seed]), own = curve_of(run.trained[seed]);
    const double loss = std::max(other.back().loss, own.back().loss);
    first_seconds.push_back(time_to(loss, other));
    seconds.push_back(time_to(loss, own));
    losses.push_back(loss);
  }
  return saving_of(mean(losses), false, first_seconds, seconds);
}

// Returns why times cannot be read from this run's learning curves; empty if they can.
std::string why_unreadable(const ComparedRun& run, const ComparedRun& first) {
  const std::vector<train::ValidationPoint>& others = first.result().validation;
  for (const TrainedRun& trained : run.trained) {
    const std::vector<train::ValidationPoint>& points = trained.result.validation;
    if (!trained.diverged.empty()) {
      return fmt::format("{} diverged", run.name);
    }
    if (!beats_guessing(run)) {
      return fmt::format("the loss of {} is not below that of guessing", run.name);
    }
    if (curve_of(trained).size() < kFewestPoints) {
      return fmt::format("{} was validated fewer than {} times on the same text (train.evaluate_every)", run.name,
                         kFewestPoints);
    }
    if (!others.empty() && points.front().predictions != others.front().predictions) {
      return fmt::format("{} and {} were validated on different amounts of text", run.name, first.name);
    }
  }
  return "";
}

bool same_machine(const std::vector<ComparedRun>& runs) {
  const std::string& machine = runs.front().trained.front().origin.machine;
  return std::all_of(runs.begin(), runs.end(), [&](const ComparedRun& run) {
    return std::all_of(run.trained.begin(), run.trained.end(),
                       [&](const TrainedRun& trained) { return trained.origin.machine == machine; });
  });
}

// Whether the runs train the same model on the same data, for different numbers of steps at most.
bool differ_in_length(const config::Config& a, const config::Config& b) {
  const Values ours = config::flatten(a), theirs = config::flatten(b);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const std::string& key = ours[i].first;
    const bool of_length = key == "train.steps" || key == "train.warmup_steps" || key == "train.learning_rate";
    if (!of_length && !is_bookkeeping(key) && ours[i].second != theirs[i].second) {
      return false;
    }
  }
  return true;
}

// Basis::none if the first model has no two lengths, or if no line can be fitted to them. Also
// Basis::none if train.seconds ended the runs, because their numbers of steps then differ by chance.
EffectiveSpeedups by_lengths(const std::vector<ComparedRun>& runs) {
  if (std::ranges::any_of(runs, [](const ComparedRun& run) { return run.config.train.seconds > 0.0; })) {
    return {};
  }
  Scaling families = {{.name = runs.front().name}};
  EffectiveSpeedups found{.of_runs = std::vector<std::optional<EffectiveSpeedups::Speedup>>(runs.size())};
  std::set<double> amounts;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::optional<double> flops = cost::training_flops(runs[r].config);
    const auto unfinished = [&](const auto& trained) { return trained.result.steps < runs[r].config.train.steps; };
    if (!flops || std::ranges::any_of(runs[r].trained, unfinished)) {
      return {};
    }
    if (*flops == 0.0) {
      continue;  // validated without training
    }
    const ScaledModel model = scaled_model(runs[r], *flops, r);
    if (differ_in_length(runs.front().config, runs[r].config)) {
      families.front().models.push_back(model);
      found.lengths.push_back(runs[r].name);
      amounts.insert(*flops);
    } else {
      families.push_back({.name = runs[r].name, .models = {model}});
    }
  }
  if (amounts.size() < 2 || families.size() < 2) {
    return {};
  }
  const Scaling fitted = fit_families(std::move(families));
  for (std::size_t f = 1; f < fitted.size(); ++f) {
    for (const ScaledModel& model : fitted[f].models) {
      if (model.speedup) {
        found.basis = EffectiveSpeedups::Basis::lengths;
        found.of_runs[model.style] = {.time = *model.speedup, .compute = model.saving};
      }
    }
  }
  return found;
}

}  // namespace

EffectiveSpeedups effective_speedups(const std::vector<ComparedRun>& runs) {
  if (runs.size() < 2) {
    return {};
  }
  const auto unknown = [](const std::string& reason) {
    return EffectiveSpeedups{.reason = fmt::format("Effective speedups are not given: {}.", reason)};
  };
  if (!same_machine(runs)) {
    return unknown("the training times were measured on different machines");
  }
  if (EffectiveSpeedups speedups = by_lengths(runs); speedups.basis != EffectiveSpeedups::Basis::none) {
    return speedups;
  }
  const ComparedRun& first = runs.front();
  if (const std::string reason = why_unreadable(first, first); !reason.empty()) {
    return unknown(reason);
  }
  EffectiveSpeedups speedups{.of_runs = {std::nullopt}};
  std::string reason;
  for (std::size_t r = 1; r < runs.size(); ++r) {
    speedups.of_runs.emplace_back();
    std::string why = why_unreadable(runs[r], first);
    if (why.empty()) {
      why = why_flat(first, runs[r]);
    }
    if (!why.empty()) {
      reason = reason.empty() ? why : reason;
    } else if (const std::optional<Saving> time = by_curves(first, runs[r])) {
      speedups.basis = EffectiveSpeedups::Basis::curves;
      speedups.of_runs.back() = {.time = *time};
    }
  }
  if (speedups.basis == EffectiveSpeedups::Basis::none) {
    return unknown(reason);
  }
  speedups.reason = reason.empty() ? "" : fmt::format("Some effective speedups are not given: {}.", reason);
  return speedups;
}

Conclusion conclude_speedups(const std::vector<ComparedRun>& runs, const EffectiveSpeedups& speedups) {
  if (speedups.basis == EffectiveSpeedups::Basis::none) {
    return {};
  }
  const bool lengths = speedups.basis == EffectiveSpeedups::Basis::lengths;
  std::vector<std::string> ratios;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (const std::optional<EffectiveSpeedups::Speedup>& speedup = speedups.of_runs[r]) {
      ratios.push_back(
          fmt::format("{} times {}the training time of {}{}{}", saving_text(speedup->time),
                      speedup->compute ? fmt::format("(compute: {} times) ", saving_text(*speedup->compute)) : "",
                      runs[r].name, speedup->time.includes_one() ? " (not shown to differ from 1)" : "",
                      speedup->time.extrapolated ? " (extrapolated)" : ""));
    }
  }
  const std::string& first = runs.front().name;
  if (lengths) {
    return {fmt::format("For the same loss, {} needs {}.", first, enumerated(ratios)),
            fmt::format("These ratios are read from power laws through {}, at the measured speeds.",
                        enumerated(speedups.lengths))};
  }
  return {fmt::format("To a loss that both reach, {} needs {}.", first, enumerated(ratios)),
          "These ratios are read from the learning curves at the measured speeds. The learning rate of the model ahead "
          "decays later, so a schedule of the shorter time would move a ratio further from 1."};
}

}  // namespace headroom::compare
