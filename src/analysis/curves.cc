#include "curves.h"

#include <algorithm>
#include <map>

#include "statistics.h"

namespace headroom::analysis {

Curves curves_of(const ComparedRun& run, std::size_t style) {
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
  Curves curves{.over_steps = {.name = run.name, .style = style}, .over_seconds = {.name = run.name, .style = style}};
  for (const auto& [step, at] : steps) {
    if (at.values.size() < run.trained.size()) {
      continue;
    }
    const auto [low, high] = std::minmax_element(at.values.begin(), at.values.end());
    const double x[] = {static_cast<double>(step), mean(at.seconds)};
    Line* const lines[] = {&curves.over_steps, &curves.over_seconds};
    for (std::size_t i = 0; i < 2; ++i) {
      lines[i]->points.push_back({x[i], mean(at.values)});
      if (at.values.size() > 1) {
        lines[i]->band.push_back({x[i], *low, *high});
      }
    }
  }
  return curves;
}

}  // namespace headroom::analysis
