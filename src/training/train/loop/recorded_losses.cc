#include "recorded_losses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace headroom::train {
namespace {

constexpr double kAlike = 0.03, kFloor = 0.05;  // expected between seeds and CPUs: a share of the loss, nats

// Returns the index of the fraction that history.training[point] is the first point to reach; nullopt if there is none.
std::optional<std::size_t> share_reached(const History& history, std::size_t point, std::int64_t steps) {
  const std::int64_t before = point > 0 ? history.training[point - 1].step : 0, now = history.training[point].step;
  std::optional<std::size_t> reached;
  for (std::size_t i = 0; i < kRecordedShares.size(); ++i) {
    const auto mark = static_cast<std::int64_t>(std::ceil(kRecordedShares[i] * static_cast<double>(steps)));
    if (before < mark && mark <= now) {
      reached = i;
    }
  }
  return reached;
}

// Returns the mean training loss of the last 5% of the steps before the point.
double recent_loss(const History& history, std::size_t point, std::int64_t steps) {
  const std::int64_t end = history.training[point].step, begin = end - steps / 20;
  double sum = 0.0, weight = 0.0;
  for (std::size_t i = 0; i <= point; ++i) {
    const TrainingPoint& own = history.training[i];
    if (own.step > begin) {
      const auto length = static_cast<double>(own.step - (i > 0 ? history.training[i - 1].step : 0));
      sum += length * own.loss;
      weight += length;
    }
  }
  return sum / weight;
}

}  // namespace

std::string compare_with_recorded(const std::vector<double>& recorded, const History& history, std::int64_t steps) {
  if (recorded.size() != kRecordedShares.size() || history.training.empty()) {
    return "";
  }
  const std::size_t point = history.training.size() - 1;
  const std::optional<std::size_t> share = share_reached(history, point, steps);
  if (!share) {
    return "";
  }
  const double loss = recent_loss(history, point, steps), expected = recorded[*share];
  const std::string reached = fmt::format("step {} ({:.0f}%): training loss {:.4g}", history.training[point].step,
                                          100.0 * kRecordedShares[*share], loss);
  if (std::abs(loss - expected) <= std::max(kAlike * expected, kFloor)) {
    return fmt::format("{}, as recorded ({:.4g})", reached, expected);
  }
  return fmt::format("{}, {:.2g} {} the recorded {:.4g}", reached, std::abs(loss - expected),
                     loss > expected ? "above" : "below", expected);
}

std::string recorded_comment(const History& history, std::int64_t steps) {
  std::string comment = "# losses:";
  std::size_t next = 0;
  for (std::size_t point = 0; point < history.training.size(); ++point) {
    if (const std::optional<std::size_t> share = share_reached(history, point, steps)) {
      if (*share != next++) {
        return "";
      }
      comment += fmt::format(" {:.4g}", recent_loss(history, point, steps));
    }
  }
  return next == kRecordedShares.size() ? comment : "";
}

}  // namespace headroom::train
