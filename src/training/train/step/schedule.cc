#include "schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace headroom::train {
namespace {

// Defaults of PyTorch's OneCycleLR, which the papers used: the initial factor, and the position of the peak as a
// fraction of the run.
constexpr double kOneCycleStart = 1.0 / 25.0;
constexpr double kOneCyclePeak = 0.3;

double interpolate(double from, double to, double fraction) {
  return from + (to - from) * std::clamp(fraction, 0.0, 1.0);
}

double one_cycle(const config::TrainOptions& o, std::int64_t step) {
  const auto steps = static_cast<double>(o.steps);
  const double rise = o.warmup_steps > 0 ? static_cast<double>(o.warmup_steps) : std::floor(kOneCyclePeak * steps);
  const double peak = std::max(rise - 1.0, 0.0);  // the step at the peak rate
  const auto at = static_cast<double>(step);
  if (at < peak) {
    return interpolate(kOneCycleStart, 1.0, at / peak);
  }
  return interpolate(1.0, o.final_learning_rate, (at - peak) / std::max(steps - 1.0 - peak, 1.0));
}

}  // namespace

double learning_rate(const config::TrainOptions& o, std::int64_t step) {
  if (o.schedule == config::Schedule::one_cycle) {
    return o.learning_rate * one_cycle(o, step);
  }
  if (step < o.warmup_steps) {
    return o.learning_rate * static_cast<double>(step + 1) / static_cast<double>(o.warmup_steps);
  }
  const bool whole = o.schedule == config::Schedule::cosine && o.cosine_period == config::CosinePeriod::steps;
  const std::int64_t period = whole ? o.steps : std::max(o.steps - o.warmup_steps, std::int64_t{1});
  const double fraction = static_cast<double>(step - o.warmup_steps) / static_cast<double>(period);
  double factor = 1.0;
  switch (o.schedule) {
    case config::Schedule::cosine:
      factor =
          interpolate(o.final_learning_rate, 1.0, 0.5 + 0.5 * std::cos(std::numbers::pi * std::min(fraction, 1.0)));
      break;
    case config::Schedule::linear:
      factor = interpolate(1.0, o.final_learning_rate, fraction);
      break;
    case config::Schedule::inverse_sqrt: {
      const auto peak = static_cast<double>(std::max(o.warmup_steps, std::int64_t{1}));
      factor = std::max(std::sqrt(peak / static_cast<double>(step + 1)), o.final_learning_rate);
      break;
    }
    case config::Schedule::constant:
    case config::Schedule::one_cycle:
      break;
  }
  return o.learning_rate * factor;
}

}  // namespace headroom::train
