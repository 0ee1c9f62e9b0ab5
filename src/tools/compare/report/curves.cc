#include "curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "foundation/core/text/format.h"
#include "markup.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/run/plan.h"

namespace headroom::compare {

namespace {

// So many points show all that a chart can: of more, means of neighbours.
constexpr std::size_t kMostPoints = 200;

// Means of neighbouring points, where there are too many.
std::vector<draw::Point> thinned(const std::vector<draw::Point>& all) {
  std::vector<draw::Point> points;
  const std::size_t together = (all.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t begin = 0; begin < all.size(); begin += together) {
    const std::size_t end = std::min(begin + together, all.size());
    draw::Point sum;
    for (std::size_t i = begin; i < end; ++i) {
      sum.x += all[i].x;
      sum.y += all[i].y;
    }
    const auto count = static_cast<double>(end - begin);
    points.push_back({sum.x / count, sum.y / count});
  }
  return points;
}

// What the seeds logged at a step.
struct AtStep {
  std::vector<double> seconds, values;
};
using BySteps = std::map<std::int64_t, AtStep>;

// Leaves the steps that all seeds have logged: a mean over fewer would jump where one ends.
BySteps of_all_seeds(BySteps steps, const ComparedRun& run) {
  std::erase_if(steps, [&](const auto& at) { return at.second.values.size() < run.trained.size(); });
  return steps;
}

BySteps validated(const ComparedRun& run, const std::string& figure) {
  BySteps steps;
  for (const TrainedRun& trained : run.trained) {
    for (const train::ValidationPoint& point : trained.result.validation) {
      AtStep& at = steps[point.step];
      at.seconds.push_back(point.seconds);
      at.values.push_back(tasks::figure(point.figures, figure));
    }
  }
  return of_all_seeds(std::move(steps), run);
}

std::vector<draw::Point> training_loss_of(const ComparedRun& run) {
  BySteps steps;
  for (const TrainedRun& trained : run.trained) {
    for (const train::TrainingPoint& point : trained.history.training) {
      steps[point.step].values.push_back(point.loss);
    }
  }
  std::vector<draw::Point> points;
  for (const auto& [step, at] : of_all_seeds(std::move(steps), run)) {
    points.push_back({static_cast<double>(step), mean(at.values)});
  }
  return thinned(points);
}

// How evenly tokens spread over the experts of each bank, 0 (one takes all) to 1.
draw::Line expert_use_of(const std::vector<train::ValidationPoint>& validations) {
  draw::Line line;
  for (const train::ValidationPoint& point : validations) {
    std::vector<double> evenness;
    for (const auto& [bank, balance] : point.experts) {
      evenness.push_back(balance.entropy);
    }
    if (!evenness.empty()) {
      const auto [least, most] = std::minmax_element(evenness.begin(), evenness.end());
      const auto step = static_cast<double>(point.step);
      line.points.push_back({step, mean(evenness)});
      line.band.push_back({step, *least, *most});
    }
  }
  return line;
}

void add_validations(const ComparedRun& run, Curves& curves) {
  for (const auto& [step, at] : validated(run, tasks::headline(run.task().figures()).name)) {
    const auto [low, high] = std::minmax_element(at.values.begin(), at.values.end());
    const double x[] = {static_cast<double>(step), mean(at.seconds)};
    draw::Line* const lines[] = {&curves.over_steps, &curves.over_seconds};
    for (std::size_t i = 0; i < 2; ++i) {
      lines[i]->points.push_back({x[i], mean(at.values)});
      if (at.values.size() > 1) {
        lines[i]->band.push_back({x[i], *low, *high});
      }
    }
  }
  for (const auto& [step, at] : validated(run, run.task().figures().front().name)) {
    curves.validation_loss.points.push_back({static_cast<double>(step), mean(at.values)});
  }
}

// Numbers in their order, other values in that of the command line.
std::vector<std::string> ordered(std::vector<std::string> values) {
  std::vector<double> numbers;
  for (const std::string& value : values) {
    if (const std::optional<double> number = as_number(value)) {
      numbers.push_back(*number);
    }
  }
  if (numbers.size() == values.size()) {
    std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return *as_number(a) < *as_number(b); });
  }
  return values;
}

std::string briefly(const Values& values) {
  const std::string whole = describe(values);
  std::string alone;
  for (const auto& [key, value] : values) {
    alone += (alone.empty() ? "" : ", ") + value;
  }
  return whole.size() > draw::kNameRoom ? alone : whole;
}

}  // namespace

std::string label_of(const ComparedRun& run) {
  return run.name == describe(run.values) ? briefly(run.values) : run.name;
}

Curves curves_of(const ComparedRun& run, std::size_t style) {
  Curves curves;
  add_validations(run, curves);
  curves.training_loss.points = training_loss_of(run);
  curves.training_loss.faint = true;
  curves.expert_use = expert_use_of(run.trained.front().history.validation);
  for (draw::Line* line :
       {&curves.over_steps, &curves.over_seconds, &curves.training_loss, &curves.validation_loss, &curves.expert_use}) {
    line->name = label_of(run);
    line->style = style;
  }
  return curves;
}

OptimizerCurves optimizer_curves_of(const ComparedRun& run) {
  std::vector<draw::Point> rates, norms;
  for (const train::TrainingPoint& point : run.trained.front().history.training) {
    rates.push_back({static_cast<double>(point.step), point.learning_rate});
    norms.push_back({static_cast<double>(point.step), point.gradient_norm});
  }
  return {.learning_rate = {.points = thinned(rates)}, .gradient_norm = {.points = thinned(norms)}};
}

draw::LineChart values_chart(const CompareResult& result, std::size_t key) {
  const std::string& name = result.variations[key].key;
  draw::LineChart chart{.title = "The figure for each " + name, .x_label = name};
  chart.x_names = ordered(result.variations[key].values);
  std::map<std::string, std::map<std::size_t, double>> lines;  // of the other keys' values: figure by place
  const bool higher = tasks::headline(result.runs.front().task().figures()).better == tasks::Better::higher;
  const auto add = [&](const std::string& line, std::size_t place, double figure) {
    const auto [at, is_new] = lines[line].emplace(place, figure);
    if (!is_new && (higher ? figure > at->second : figure < at->second)) {
      at->second = figure;
    }
  };
  std::size_t combinations = 1;
  for (std::size_t other = 0; other < result.variations.size(); ++other) {
    combinations *= other == key ? 1 : result.variations[other].values.size();
  }
  for (const ComparedRun& run : result.runs) {
    Values others = run.values;
    const std::string value = others[key].second;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(key));
    const auto place = std::find(chart.x_names.begin(), chart.x_names.end(), value) - chart.x_names.begin();
    if (std::isfinite(run.headline())) {
      add(combinations > draw::kStyles ? "best of all" : briefly(others), static_cast<std::size_t>(place),
          run.headline());
    }
  }
  for (const auto& [others, figures] : lines) {
    draw::Line& line = chart.lines.emplace_back();
    line.name = others;
    line.style = chart.lines.size() - 1;
    for (const auto& [place, figure] : figures) {
      line.points.push_back({static_cast<double>(place), figure});
    }
  }
  return chart;
}

}  // namespace headroom::compare
