#include "scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "foundation/core/text/format.h"
#include "result.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kFewestPoints = 3;  // of a learning curve from which steps are read

struct CurvePoint {
  double steps, loss;
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
    if (point.step > 0 && std::isfinite(loss) && loss > 0.0) {
      curve.push_back({static_cast<double>(point.step), loss, std::isfinite(error) ? error : 0.0});
    }
  }
  return curve;
}

// Returns the steps from which the curve stays at or below the loss, which its last point does. Between two points, the
// curve is a power law of the steps. A curve that never was above the loss returns its first point.
double steps_to(double loss, const Curve& curve) {
  std::size_t below = curve.size() - 1;
  while (below > 0 && curve[below - 1].loss <= loss) {
    --below;
  }
  const CurvePoint& after = curve[below];
  if (below == 0) {
    return after.steps;
  }
  const CurvePoint& before = curve[below - 1];
  const double share = std::log(before.loss / loss) / std::log(before.loss / after.loss);
  return before.steps * std::pow(after.steps / before.steps, share);
}

// Whether the errors of the losses leave the time to this loss uncertain by more than kMostUncertain.
bool is_flat(double loss, const Curve& curve) {
  return steps_to(loss, curve) > kMostUncertain * steps_to(loss + kErrors * curve.back().error, curve);
}

// Returns why the two models' curves give no ratios; empty if they do.
std::string why_flat(const ComparedRun& first, const ComparedRun& run) {
  for (std::size_t seed = 0; seed < std::min(first.trained.size(), run.trained.size()); ++seed) {
    const Curve other = curve_of(first.trained[seed]), own = curve_of(run.trained[seed]);
    const double loss = std::max(other.back().loss, own.back().loss);
    for (const auto& [name, curve] : {std::pair(&first.name, &other), std::pair(&run.name, &own)}) {
      if (is_flat(loss, *curve)) {
        return fmt::format(
            "the errors of the losses of {} leave the time to a loss of {} uncertain by more than a factor of {:.0f}",
            *name, format_decimal(loss, 4), kMostUncertain);
      }
    }
  }
  return "";
}

EffectiveSpeedups::Speedup by_curves(const ComparedRun& first, const ComparedRun& run) {
  std::vector<double> losses, tokens[2], seconds[2];  // of each seed; [0] first model, [1] `run`
  for (std::size_t seed = 0; seed < std::min(first.trained.size(), run.trained.size()); ++seed) {
    const ComparedRun* const runs[2] = {&first, &run};
    const Curve curves[2] = {curve_of(first.trained[seed]), curve_of(run.trained[seed])};
    losses.push_back(std::max(curves[0].back().loss, curves[1].back().loss));
    for (std::size_t i = 0; i < 2; ++i) {
      const train::TrainResult& result = runs[i]->trained[seed].result;
      const double share = steps_to(losses.back(), curves[i]) / static_cast<double>(result.steps);
      tokens[i].push_back(share * runs[i]->tokens());
      seconds[i].push_back(share * result.seconds);
    }
  }
  return {.tokens = *saving_of(mean(losses), false, tokens[0], tokens[1]),
          .time = *saving_of(mean(losses), false, seconds[0], seconds[1])};
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
    if (!(trained.result.seconds > 0.0)) {
      return fmt::format("the training time of {} is unknown", run.name);
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
  return std::ranges::all_of(runs, [&](const ComparedRun& run) {
    return std::ranges::all_of(run.trained,
                               [&](const TrainedRun& trained) { return trained.origin.machine == machine; });
  });
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
    } else {
      speedups.of_runs.back() = by_curves(first, runs[r]);
    }
  }
  if (std::ranges::none_of(speedups.of_runs, [](const auto& speedup) { return speedup.has_value(); })) {
    return unknown(reason);
  }
  speedups.reason = reason.empty() ? "" : fmt::format("Some effective speedups are not given: {}.", reason);
  return speedups;
}

Conclusion conclude_speedups(const std::vector<ComparedRun>& runs, const EffectiveSpeedups& speedups) {
  std::vector<std::string> ratios;
  for (std::size_t r = 0; r < speedups.of_runs.size(); ++r) {
    if (const std::optional<EffectiveSpeedups::Speedup>& speedup = speedups.of_runs[r]) {
      ratios.push_back(fmt::format("{} times the tokens and {} times the training time of {}{}",
                                   saving_text(speedup->tokens), saving_text(speedup->time), runs[r].name,
                                   speedup->time.includes_one() ? " (a time not shown to differ from 1)" : ""));
    }
  }
  if (ratios.empty()) {
    return {};
  }
  return {fmt::format("To a loss that both reach, {} needs {}.", runs.front().name, enumerated(ratios)),
          "These ratios are read from the learning curves at the measured speeds. The learning rate of the model ahead "
          "decays later, so a schedule of the shorter time would move a ratio further from 1."};
}

}  // namespace headroom::compare
