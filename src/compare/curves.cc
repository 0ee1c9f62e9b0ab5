#include "curves.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "markup.h"
#include "plan.h"
#include "statistics.h"

namespace headroom::compare {

namespace {

// So many points show all that a chart can: of more, means of neighbours.
constexpr std::size_t kMostPoints = 200;

draw::Line training_loss_of(const std::vector<train::TrainingPoint>& logged) {
  draw::Line line;
  const std::size_t together = (logged.size() + kMostPoints - 1) / kMostPoints;
  for (std::size_t begin = 0; begin < logged.size(); begin += together) {
    const std::size_t end = std::min(begin + together, logged.size());
    std::vector<double> steps, losses;
    for (std::size_t i = begin; i < end; ++i) {
      steps.push_back(static_cast<double>(logged[i].step));
      losses.push_back(logged[i].loss);
    }
    line.points.push_back({mean(steps), mean(losses)});
  }
  return line;
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
  const std::string& figure = tasks::headline(run.task().figures()).name;
  struct AtStep {
    std::vector<double> seconds, values;
  };
  std::map<std::int64_t, AtStep> steps;
  for (const TrainedRun& trained : run.trained) {
    for (const train::ValidationPoint& point : trained.result.validation) {
      AtStep& at = steps[point.step];
      at.seconds.push_back(point.seconds);
      at.values.push_back(tasks::figure(point.figures, figure));
    }
  }
  for (const auto& [step, at] : steps) {
    if (at.values.size() < run.trained.size()) {
      continue;
    }
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
  const TrainedRun& first = run.trained.front();
  curves.training_loss = training_loss_of(first.history.training);
  curves.training_loss.faint = true;
  for (const train::ValidationPoint& point : first.result.validation) {
    const double loss = tasks::figure(point.figures, run.task().figures().front().name);
    curves.validation_loss.points.push_back({static_cast<double>(point.step), loss});
  }
  curves.expert_use = expert_use_of(first.history.validation);
  for (draw::Line* line :
       {&curves.over_steps, &curves.over_seconds, &curves.training_loss, &curves.validation_loss, &curves.expert_use}) {
    line->name = label_of(run);
    line->style = style;
  }
  return curves;
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
