// Learning curves.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "sections.h"
#include "tools/compare/figures/statistics.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kMostPoints = 200;           // per curve; more cannot be distinguished
constexpr std::size_t kMostCurves{draw::kStyles};  // per chart; more cannot be told apart

// Averages neighbouring points if there are too many.
std::vector<draw::Point> downsampled(const std::vector<draw::Point>& all) {
  std::vector<draw::Point> points;
  const std::size_t group = ceil_div(all.size(), kMostPoints);
  for (std::size_t begin = 0; begin < all.size(); begin += group) {
    const std::size_t end = std::min(begin + group, all.size());
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

// The values that the seeds logged at one step.
struct AtStep {
  std::vector<double> seconds, values;
};
using BySteps = std::map<std::int64_t, AtStep>;

// Drops steps that not all seeds have logged, since the mean would jump where a seed ends.
BySteps of_all_seeds(BySteps steps, const ComparedRun& run) {
  std::erase_if(steps, [&](const auto& at) { return at.second.values.size() < run.trained.size(); });
  return steps;
}

BySteps validated(const ComparedRun& run, const std::string& figure) {
  BySteps steps;
  for (const TrainedRun& trained : run.trained) {
    for (const train::ValidationPoint& point : train::curve_of(trained.result.validation)) {
      AtStep& at = steps[point.step];
      at.seconds.push_back(point.seconds);
      at.values.push_back(tasks::figure(point.figures, figure));
    }
  }
  return of_all_seeds(std::move(steps), run);
}

// Returns the mean of the points in the last twentieth of the steps before each point.
std::vector<draw::Point> running_mean(const std::vector<draw::Point>& points) {
  constexpr double kWindow = 0.05;
  const double window = points.empty() ? 0.0 : kWindow * points.back().x;
  std::vector<draw::Point> means;
  double sum = 0.0;
  for (std::size_t i = 0, first = 0; i < points.size(); ++i) {
    sum += points[i].y;
    for (; points[first].x <= points[i].x - window && first < i; ++first) {
      sum -= points[first].y;
    }
    means.push_back({points[i].x, sum / static_cast<double>(i - first + 1)});
  }
  return means;
}

// Returns the running mean of the training loss, and the values behind it.
std::pair<draw::Line, draw::Line> training_loss_of(const ComparedRun& run) {
  BySteps steps;
  for (const TrainedRun& trained : run.trained) {
    for (const train::TrainingPoint& point : trained.log.training) {
      steps[point.step].values.push_back(point.loss);
    }
  }
  const std::vector<draw::Point> points = transformed(of_all_seeds(std::move(steps), run), [](const auto& entry) {
    return draw::Point{static_cast<double>(entry.first), mean(entry.second.values)};
  });
  std::pair<draw::Line, draw::Line> lines;
  lines.first.points = downsampled(running_mean(points));
  lines.second.points = downsampled(points);
  lines.second.raw = true;
  for (draw::Line* const line : {&lines.first, &lines.second}) {
    line->faint = true;
    line->dots = false;
  }
  return lines;
}

draw::Line validation_loss_of(const ComparedRun& run) {
  draw::Line line;
  for (const auto& [step, at] : validated(run, run.task().figures().front().name)) {
    line.points.push_back({static_cast<double>(step), mean(at.values)});
  }
  return line;
}

// Plots the normalised entropy of the experts' token shares for the first seed: the mean over all banks, with a band
// from the lowest to the highest bank.
draw::Line expert_use_of(const ComparedRun& run) {
  draw::Line line;
  for (const train::ValidationPoint& point : train::curve_of(run.trained.front().log.validation)) {
    const std::vector<double> evenness =
        transformed(point.experts | std::views::values, &train::ExpertBalance::entropy);
    if (!evenness.empty()) {
      const auto [least, most] = std::ranges::minmax_element(evenness);
      const auto step = static_cast<double>(point.step);
      line.points.push_back({step, mean(evenness)});
      line.band.push_back({step, *least, *most});
    }
  }
  return line;
}

// Plots the headline figure over steps and over seconds: the mean over the seeds, with a band from the lowest to the
// highest.
std::pair<draw::Line, draw::Line> headline_of(const ComparedRun& run) {
  std::pair<draw::Line, draw::Line> lines;
  for (const auto& [step, at] : validated(run, run.headline_kind().name)) {
    const auto [low, high] = std::ranges::minmax_element(at.values);
    const double x[] = {static_cast<double>(step), mean(at.seconds)};
    draw::Line* const both[] = {&lines.first, &lines.second};
    for (std::size_t i = 0; i < 2; ++i) {
      both[i]->points.push_back({x[i], mean(at.values)});
      if (at.values.size() > 1) {
        both[i]->band.push_back({x[i], *low, *high});
      }
    }
  }
  return lines;
}

struct Charts {
  draw::LineChart steps, seconds, losses, experts;
};

Charts charts_of(const CompareResult& result, const std::string& what) {
  Charts charts{.steps = {.title = what + " over steps", .x_label = "steps", .end_values = true},
                .seconds = {.title = what + " over time", .x_label = "seconds", .end_values = true},
                .losses = {.title = "Training and validation loss", .x_label = "steps", .end_values = true},
                .experts = {.title = "Use of experts", .x_label = "steps", .y = draw::YScale::shares}};
  for (std::size_t r = 0; r < std::min(result.runs.size(), kMostCurves); ++r) {
    const ComparedRun& run = result.runs[r];
    const auto add = [&](draw::LineChart& chart, draw::Line line) {
      line.name = result.kind == Kind::run ? "" : label_of(run);
      line.style = static_cast<int>(r);
      chart.lines.push_back(std::move(line));
    };
    auto [over_steps, over_seconds] = headline_of(run);
    add(charts.steps, std::move(over_steps));
    add(charts.seconds, std::move(over_seconds));
    auto [mean_loss, logged_loss] = training_loss_of(run);
    add(charts.losses, std::move(logged_loss));
    add(charts.losses, std::move(mean_loss));
    add(charts.losses, validation_loss_of(run));
    add(charts.experts, expert_use_of(run));
  }
  return charts;
}

// Whether the points of the learning curves read only a part of the data.
bool validates_in_part(const ComparedRun& run) {
  return std::ranges::any_of(run.trained, [](const TrainedRun& trained) {
    return std::ranges::any_of(trained.result.validation,
                               [](const train::ValidationPoint& point) { return point.predictions > 0; });
  });
}

// Appends a chart with its caption unless there is nothing to draw.
void add_figure(Json& figures, const std::string& remark, const draw::LineChart& chart) {
  if (std::ranges::any_of(chart.lines, [](const draw::Line& line) { return !line.points.empty(); })) {
    figures.push_back(figure(chart.title, remark, block_of(chart)));
  }
}

// Plots the learning rate and gradient norm of a single run's first seed.
void add_optimizer_figures(Json& figures, const ComparedRun& run) {
  std::vector<draw::Point> rates, norms;
  for (const train::TrainingPoint& point : run.trained.front().log.training) {
    rates.push_back({static_cast<double>(point.step), point.learning_rate});
    norms.push_back({static_cast<double>(point.step), point.gradient_norm});
  }
  const draw::LineChart rate{.title = "Learning rate",
                             .x_label = "steps",
                             .lines = {{.points = downsampled(rates), .dots = false}},
                             .y = draw::YScale::from_zero,
                             .end_values = true};
  const draw::LineChart norm{.title = "Gradient norm",
                             .x_label = "steps",
                             .lines = {{.points = downsampled(norms), .dots = false}},
                             .end_values = true};
  add_figure(figures, "at each logged step", rate);
  add_figure(figures, "before clipping, at each logged step; logarithmic", norm);
}

Json legend(const std::vector<ComparedRun>& runs) {
  Json items = Json::array();
  for (std::size_t r = 0; r < std::min(runs.size(), kMostCurves); ++r) {
    items.push_back({{"name", runs[r].name}, {"style", r}, {"text", headline_text(runs[r])}});
  }
  return {{"legend", std::move(items)}};
}

}  // namespace

Json learning_section(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const tasks::FigureKind& kind = runs.front().headline_kind();
  const bool seeds = runs.front().trained.size() > 1;
  const Charts charts = charts_of(result, "Validation " + kind.words);
  const bool in_part = std::ranges::any_of(runs, validates_in_part);
  Json figures = Json::array();
  add_figure(figures,
             fmt::format("{} is better; logarithmic{}{}{}", better_direction(kind),
                         in_part ? "; always the same part of the validation data, evenly spread" : "",
                         seeds ? "; mean over the seeds, shaded from the lowest to the highest" : "",
                         runs.size() > kMostCurves ? fmt::format("; the first {} runs", kMostCurves) : ""),
             charts.steps);
  add_figure(figures, "seconds of training, without evaluation", charts.seconds);
  if (std::ranges::any_of(charts.losses.lines,
                          [](const draw::Line& line) { return line.faint && !line.points.empty(); })) {
    add_figure(figures,
               fmt::format("{}thin: training, a running mean over 5% of the steps, and behind it what was logged; its "
                           "waves come from the documents that a batch reads at the time, the same for all models",
                           seeds ? "means over the seeds; " : ""),
               charts.losses);
  }
  if (result.kind == Kind::run) {
    add_optimizer_figures(figures, runs.front());
  }
  add_figure(
      figures,
      "entropy of the tokens' shares: 1 means all experts are used equally, 0 only one; the mean over all banks, "
      "shaded from the lowest to the highest",
      charts.experts);
  Json blocks = Json::array();
  if (!figures.empty()) {
    blocks.push_back({{"heading", "Learning"}});
    if (runs.size() > 1) {
      blocks.push_back(legend(runs));
    }
    blocks.push_back({{"grid", std::move(figures)}});
  }
  return blocks;
}

}  // namespace headroom::compare
