#include "history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/core/error.h"

namespace headroom::train {
namespace {

constexpr const char *kPeakMemoryKey = "peak_memory_bytes", *kPredictionsKey = "validation_predictions",
                     *kWholeKey = "whole";

void add_memory(std::int64_t bytes, Json& line) {
  if (bytes > 0) {
    line[kPeakMemoryKey] = bytes;
  }
}

double number_at(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_number() ? line.at(key).get<double>() : 0.0;
}

std::int64_t count_at(const Json& line, const char* key) {
  return line.contains(key) && line.at(key).is_number_integer() ? line.at(key).get<std::int64_t>() : 0;
}

std::map<std::string, ExpertBalance> experts_of(const Json& line) {
  std::map<std::string, ExpertBalance> experts;
  if (line.contains("experts") && line.at("experts").is_object()) {
    for (const auto& [bank, balance] : line.at("experts").items()) {
      if (balance.is_object() && balance.contains("entropy") && balance.at("entropy").is_number()) {
        experts[bank] = {.most = number_at(balance, "most"),
                         .least = number_at(balance, "least"),
                         .entropy = number_at(balance, "entropy")};
      }
    }
  }
  return experts;
}

// Adds the points in the line, if any.
void add_line(const Json& line, const std::vector<tasks::FigureKind>& kinds, History& history) {
  if (line.contains("loss") && line.at("loss").is_number()) {
    history.training.push_back({.step = count_at(line, "step"),
                                .seconds = number_at(line, "seconds"),
                                .loss = number_at(line, "loss"),
                                .regulariser = number_at(line, "regulariser"),
                                .learning_rate = number_at(line, "learning_rate"),
                                .gradient_norm = number_at(line, "gradient_norm"),
                                .tokens = count_at(line, "tokens"),
                                .tokens_per_second = number_at(line, "tokens_per_second"),
                                .peak_memory_bytes = count_at(line, kPeakMemoryKey)});
  }
  const bool whole = line.contains(kWholeKey) && line.at(kWholeKey).is_object();
  if (whole || line.contains(kinds.front().metric)) {
    history.validations.push_back({.step = count_at(line, "step"),
                                   .seconds = number_at(line, "seconds"),
                                   .figures = tasks::read_metrics(whole ? line.at(kWholeKey) : line, kinds),
                                   .predictions = count_at(line, kPredictionsKey),
                                   .tokens = count_at(line, "tokens"),
                                   .experts = experts_of(line),
                                   .peak_memory_bytes = count_at(line, kPeakMemoryKey)});
  }
}

}  // namespace

ExpertBalance balance_of(const at::Tensor& counts) {
  const at::Tensor count = counts.to(at::kDouble).reshape({-1});
  const double total = count.sum().item<double>();
  if (total == 0.0) {
    return {};
  }
  const at::Tensor fraction = count / total;
  const double entropy = -at::xlogy(fraction, fraction).sum().item<double>();
  const double most_even = std::log(static_cast<double>(count.numel()));
  return {.most = fraction.max().item<double>(),
          .least = fraction.min().item<double>(),
          .entropy = most_even > 0.0 ? entropy / most_even : 1.0};
}

std::map<std::string, ExpertBalance> balance_of(const nn::ExpertUsage& usage) {
  std::map<std::string, ExpertBalance> experts;
  for (const auto& [bank, counts] : usage) {
    experts[bank] = balance_of(counts);
  }
  return experts;
}

std::int64_t History::peak_memory_bytes() const {
  return max_over(validations, &ValidationPoint::peak_memory_bytes,
                  max_over(training, &TrainingPoint::peak_memory_bytes, std::int64_t{0}));
}

bool History::validated(std::int64_t step, bool part) const {
  return std::ranges::any_of(
      validations, [=](const ValidationPoint& point) { return point.step == step && (point.predictions > 0) == part; });
}

std::vector<ValidationPoint> curve_of(const std::vector<ValidationPoint>& validations) {
  std::vector<ValidationPoint> curve;
  std::ranges::copy_if(validations, std::back_inserter(curve), [&](const ValidationPoint& point) {
    return point.predictions == validations.front().predictions;
  });
  return curve;
}

Json to_json(const TrainingPoint& point) {
  Json line = {{"step", point.step},
               {"loss", point.loss},
               {"tokens", point.tokens},
               {"tokens_per_second", point.tokens_per_second},
               {"learning_rate", point.learning_rate},
               {"gradient_norm", point.gradient_norm},
               {"seconds", point.seconds}};
  if (point.regulariser != 0.0) {
    line["regulariser"] = point.regulariser;
  }
  add_memory(point.peak_memory_bytes, line);
  return line;
}

Json to_json(const ValidationPoint& point, const std::vector<tasks::FigureKind>& kinds, bool beside_curve) {
  Json line = {{"step", point.step}};
  tasks::add_metrics(point.figures, kinds, beside_curve ? line[kWholeKey] : line);
  if (point.predictions > 0) {
    line[kPredictionsKey] = point.predictions;
  }
  line["tokens"] = point.tokens;
  line["seconds"] = point.seconds;
  for (const auto& [bank, balance] : point.experts) {
    line["experts"][bank] = {{"most", balance.most}, {"least", balance.least}, {"entropy", balance.entropy}};
  }
  add_memory(point.peak_memory_bytes, line);
  return line;
}

std::vector<Json> lines_until(const std::filesystem::path& file, std::int64_t last_step) {
  std::vector<Json> lines;
  std::ifstream stream(file, std::ios::binary);
  for (std::string line; std::getline(stream, line);) {
    try {
      Json json = parse_json(line, file.string());
      const bool counts = json.is_object() && json.contains("step") && json["step"].is_number_integer();
      const std::int64_t step = counts ? json["step"].get<std::int64_t>() : -1;
      if (step >= 0 && step <= last_step) {
        lines.push_back(std::move(json));
      }
    } catch (const UserError&) {
      // The line was truncated by a kill or a full disk; its step will be repeated.
    }
  }
  return lines;
}

History read_history(const std::filesystem::path& folder, std::int64_t last_step,
                     const std::vector<tasks::FigureKind>& kinds) {
  History history;
  for (const Json& line : lines_until(folder / "metrics.jsonl", last_step)) {
    add_line(line, kinds, history);
  }
  return history;
}

namespace {

constexpr double kAlike = 0.03, kFloor = 0.05;  // expected differences between seeds and CPUs: relative, and in nats

// Returns the index of the fraction that history.training[point] is the first point to reach. Returns nullopt if there
// is none, or if the losses since the last logged step are the mean over more than a tenth of the steps.
std::optional<std::size_t> share_reached(const History& history, std::size_t point, std::int64_t steps) {
  const std::int64_t before = point > 0 ? history.training[point - 1].step : 0, now = history.training[point].step;
  std::optional<std::size_t> reached;
  for (std::size_t i = 0; i < kRecordedShares.size(); ++i) {
    const auto mark = static_cast<std::int64_t>(std::ceil(kRecordedShares[i] * static_cast<double>(steps)));
    if (before < mark && mark <= now && now - before <= std::max<std::int64_t>(1, steps / 10)) {
      reached = i;
    }
  }
  return reached;
}

// Returns the mean training loss of the last 5% of the steps before the point, at least of the last step.
double recent_loss(const History& history, std::size_t point, std::int64_t steps) {
  const std::int64_t end = history.training[point].step, begin = end - std::max<std::int64_t>(1, steps / 20);
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

std::string losses_key(const History& history, std::int64_t steps) {
  std::string losses;
  std::size_t next = 0;
  for (std::size_t point = 0; point < history.training.size(); ++point) {
    if (const std::optional<std::size_t> share = share_reached(history, point, steps)) {
      if (*share != next++) {
        return "";
      }
      losses += fmt::format("{}{:.4g}", losses.empty() ? "" : ", ", recent_loss(history, point, steps));
    }
  }
  return next == kRecordedShares.size() ? "losses = [" + losses + "]" : "";
}

}  // namespace headroom::train
