#include "pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace headroom::train {
namespace {

constexpr double kValidationShare = 0.011, kCheckpointShare = 0.006;  // of the time of training
// Of a step's time what reading a row without gradients takes: a third of its products, and what surrounds them.
constexpr double kForward = 0.4;
constexpr double kLongestPause = 480.0;  // seconds between checkpoints: ten minutes, of steps that may become slower
constexpr double kOverhead = 0.03, kBytesPerSecond = 2e8;  // of a checkpoint, on a disk of no great speed

// As a config says it, which has a validation and a checkpoint at the end anyway.
std::int64_t every(double steps_between, std::int64_t steps) {
  return steps_between < static_cast<double>(steps) ? static_cast<std::int64_t>(steps_between) : 0;
}

}  // namespace

std::int64_t steps_between_validations(const config::Config& config, double rows) {
  const auto steps = static_cast<double>(config.train.steps);
  const double cost = kForward * rows / static_cast<double>(std::max<std::int64_t>(1, config.whole_sequences()));
  return every(std::ceil(std::max(steps / 20.0, cost / kValidationShare)), config.train.steps);
}

std::int64_t steps_between_checkpoints(std::int64_t steps, double step_seconds, double bytes) {
  const double step = std::max(step_seconds, 1e-9), cost = (kOverhead + bytes / kBytesPerSecond) / step;
  const double wanted = std::min(std::ceil(static_cast<double>(steps) / 10.0), std::floor(kLongestPause / step));
  return every(std::max({1.0, wanted, std::ceil(cost / kCheckpointShare)}), steps);
}

std::string describe_pace(const config::TrainOptions& options) {
  const auto when = [](std::int64_t steps) {
    return steps > 0 ? fmt::format("every {} steps and at the end", steps) : std::string("at the end only");
  };
  const std::string checkpoints = options.checkpoint_every == config::kAutomatic ? "as often as the first steps tell"
                                                                                 : when(options.checkpoint_every);
  return fmt::format("validates {} (train.evaluate_every), writes a checkpoint {} (train.checkpoint_every)",
                     when(options.evaluate_every), checkpoints);
}

}  // namespace headroom::train
