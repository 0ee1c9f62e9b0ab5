#include "figures.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "foundation/core/text/format.h"
#include "headroom/core/error.h"

namespace headroom::tasks {

void Sum::add(double value, std::int64_t counted) {
  sum += value;
  count += counted;
}

void add(Sums& sums, const Sums& more) {
  for (const auto& [name, sum] : more) {
    sums[name].add(sum.sum, sum.count);
  }
}

Sum sum_of(const Sums& sums, std::string_view name) {
  const auto found = sums.find(name);
  return found == sums.end() ? Sum() : found->second;
}

double mean(const Sums& sums, std::string_view name) {
  const Sum sum = sum_of(sums, name);
  return sum.count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum.sum / static_cast<double>(sum.count);
}

double standard_error(const Sums& sums, std::string_view name, std::string_view squares) {
  const Sum values = sum_of(sums, name), squared = sum_of(sums, squares);
  if (values.count < 2 || squared.count != values.count) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const auto n = static_cast<double>(values.count);
  const double average = values.sum / n;
  return std::sqrt(std::max(0.0, squared.sum / n - average * average) / (n - 1.0));
}

FigureKind loss_kind(const std::string& token) {
  return {.name = "loss", .metric = "validation_loss", .words = "loss", .unit = "nats per " + token, .decimals = 4};
}

FigureKind perplexity_kind(Shown shown, const std::string& words) {
  return {.name = "perplexity", .metric = "validation_perplexity", .words = words, .unit = "", .shown = shown};
}

FigureKind accuracy_kind(Shown shown, const std::string& words) {
  return {.name = "accuracy",
          .metric = "validation_accuracy",
          .words = words,
          .unit = "",
          .better = Better::higher,
          .shown = shown,
          .decimals = 4,
          .range = 1.0};
}

FigureKind loss_error_kind() {
  return {.name = std::string(kLossError),
          .metric = "validation_loss_error",
          .words = "standard error of the loss",
          .unit = "nats",
          .better = Better::neither,
          .decimals = 4,
          .always = false};
}

void add_loss_error(const Sums& sums, Figures& figures) {
  if (const double error = standard_error(sums, kCrossEntropy, kSquaredCrossEntropy); std::isfinite(error)) {
    figures[std::string(kLossError)] = error;
  }
}

Figures loss_and_perplexity(const Sums& sums) {
  const double loss = mean(sums, kCrossEntropy);
  Figures figures = {{"loss", loss}, {"perplexity", std::exp(loss)}};
  add_loss_error(sums, figures);
  return figures;
}

std::string uncertainty(const Figures& figures) {
  const double loss = figure(figures, "loss"), error = figure(figures, std::string(kLossError));
  if (!std::isfinite(loss) || !(error >= kNotableError)) {
    return "";
  }
  constexpr double kMostAsPercentage = 0.5;
  const std::string perplexity = figures.contains("perplexity") && error < kMostAsPercentage
                                     ? fmt::format(", {:.2g}% of its perplexity", 100.0 * std::expm1(error))
                                     : "";
  return fmt::format("the loss {} has a standard error of {:.2g}, because there are few predictions{}",
                     format_decimal(loss, 4), error, perplexity);
}

void complete(Figures& figures, const std::vector<FigureKind>& kinds) {
  const auto loss = figures.find("loss");
  const bool has_perplexity =
      std::ranges::any_of(kinds, [](const FigureKind& kind) { return kind.name == "perplexity"; });
  if (has_perplexity && loss != figures.end()) {
    figures["perplexity"] = std::exp(loss->second);
  }
}

double figure(const Figures& figures, const std::string& name) {
  const auto found = figures.find(name);
  return found == figures.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

const FigureKind& headline(const std::vector<FigureKind>& kinds) {
  return *std::ranges::find(kinds, Shown::headline, &FigureKind::shown);
}

std::vector<FigureKind> shown_in_tables(const std::vector<FigureKind>& kinds) {
  std::vector<FigureKind> shown;
  std::ranges::copy_if(kinds, std::back_inserter(shown),
                       [](const FigureKind& kind) { return kind.shown != Shown::files; });
  return shown;
}

std::string describe(const Figures& figures, const std::vector<FigureKind>& kinds) {
  std::string text;
  for (const FigureKind& kind : kinds) {
    const auto found = figures.find(kind.name);
    if (found == figures.end() || kind.name == kLossError) {
      continue;
    }
    constexpr double kHuge = 1e9;  // decimals are meaningless from here up
    const std::string value = std::abs(found->second) < kHuge ? format_decimal(found->second, kind.decimals)
                                                              : fmt::format("{:.4g}", found->second);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", kind.words, value);
    if (const auto error = figures.find(kLossError); kind.name == "loss" && error != figures.end()) {
      text += fmt::format(" \u00b1 {:.2g}", error->second);
    }
  }
  return text;
}

void add_metrics(const Figures& figures, const std::vector<FigureKind>& kinds, Json& object) {
  for (const FigureKind& kind : kinds) {
    const auto found = figures.find(kind.name);
    if (found != figures.end() || kind.always) {
      object[kind.metric] = found != figures.end() ? Json(found->second) : Json();
    }
  }
}

Figures read_metrics(const Json& object, const std::vector<FigureKind>& kinds) {
  Figures figures;
  for (const FigureKind& kind : kinds) {
    if (object.contains(kind.metric) && object.at(kind.metric).is_number()) {
      figures[kind.name] = object.at(kind.metric).get<double>();
    }
  }
  return figures;
}

}  // namespace headroom::tasks
