// Draws learning curves.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "foundation/core/ceil_div.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "sections.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kMostPoints = 200;           // per curve; more cannot be distinguished
constexpr std::size_t kMostCurves{draw::kStyles};  // per chart; more cannot be told apart

struct Point {
  double x = 0.0, y = 0.0;
};

// Returns the points for a chart; averages neighbouring points if there are too many.
Json downsampled(const std::vector<Point>& all) {
  Json points = Json::array();
  const std::size_t group = ceil_div(all.size(), kMostPoints);
  for (std::size_t begin = 0; begin < all.size(); begin += group) {
    const std::size_t end = std::min(begin + group, all.size());
    Point sum;
    for (std::size_t i = begin; i < end; ++i) {
      sum.x += all[i].x;
      sum.y += all[i].y;
    }
    const auto count = static_cast<double>(end - begin);
    points.push_back(draw::numbers({sum.x / count, sum.y / count}));
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
std::vector<Point> running_mean(const std::vector<Point>& points) {
  constexpr double kWindow = 0.05;
  const double window = points.empty() ? 0.0 : kWindow * points.back().x;
  std::vector<Point> means;
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
std::pair<Json, Json> training_loss_of(const ComparedRun& run) {
  BySteps steps;
  for (const TrainedRun& trained : run.trained) {
    for (const train::TrainingPoint& point : trained.log.training) {
      steps[point.step].values.push_back(point.loss);
    }
  }
  const std::vector<Point> points = transformed(of_all_seeds(std::move(steps), run), [](const auto& entry) {
    return Point{static_cast<double>(entry.first), mean(entry.second.values)};
  });
  return {{{"points", downsampled(running_mean(points))}, {"faint", true}, {"dots", false}},
          {{"points", downsampled(points)}, {"faint", true}, {"raw", true}, {"dots", false}}};
}

Json validation_loss_of(const ComparedRun& run) {
  Json points = Json::array();
  for (const auto& [step, at] : validated(run, run.task().figures().front().name)) {
    points.push_back(draw::numbers({static_cast<double>(step), mean(at.values)}));
  }
  return {{"points", std::move(points)}};
}

// Plots the normalised entropy of the experts' token shares for the first seed: the mean over all banks, with a band
// from the lowest to the highest bank.
Json expert_use_of(const ComparedRun& run) {
  Json points = Json::array(), band = Json::array();
  for (const train::ValidationPoint& point : train::curve_of(run.trained.front().log.validation)) {
    const std::vector<double> evenness =
        transformed(point.experts | std::views::values, &train::ExpertBalance::entropy);
    if (!evenness.empty()) {
      const auto [least, most] = std::ranges::minmax_element(evenness);
      const auto step = static_cast<double>(point.step);
      points.push_back(draw::numbers({step, mean(evenness)}));
      band.push_back(draw::numbers({step, *least, *most}));
    }
  }
  return {{"points", std::move(points)}, {"band", std::move(band)}};
}

// Plots the headline figure over steps and over seconds: the mean over the seeds, with a band from the lowest to the
// highest.
std::pair<Json, Json> headline_of(const ComparedRun& run) {
  Json points[2] = {Json::array(), Json::array()}, bands[2] = {Json::array(), Json::array()};
  for (const auto& [step, at] : validated(run, run.headline_kind().name)) {
    const auto [low, high] = std::ranges::minmax_element(at.values);
    const double x[] = {static_cast<double>(step), mean(at.seconds)};
    for (std::size_t i = 0; i < 2; ++i) {
      points[i].push_back(draw::numbers({x[i], mean(at.values)}));
      if (at.values.size() > 1) {
        bands[i].push_back(draw::numbers({x[i], *low, *high}));
      }
    }
  }
  return {{{"points", std::move(points[0])}, {"band", std::move(bands[0])}},
          {{"points", std::move(points[1])}, {"band", std::move(bands[1])}}};
}

Json line_chart(const std::string& title, const char* x_label, Json lines = Json::array()) {
  return {
      {"chart", "lines"}, {"title", title}, {"x_label", x_label}, {"lines", std::move(lines)}, {"end_values", true}};
}

struct Charts {
  Json steps, seconds, losses, experts;
};

Charts charts_of(const CompareResult& result, const std::string& what) {
  Charts charts{.steps = line_chart(what + " over steps", "steps"),
                .seconds = line_chart(what + " over time", "seconds"),
                .losses = line_chart("Training and validation loss", "steps"),
                .experts = line_chart("Use of experts", "steps")};
  charts.experts.update({{"y", "shares"}, {"end_values", false}});
  charts.steps["bounds"] = charts.seconds["bounds"] = bounds_of(result.runs.front().headline_kind());
  for (std::size_t r = 0; r < std::min(result.runs.size(), kMostCurves); ++r) {
    const ComparedRun& run = result.runs[r];
    const auto add = [&](Json& chart, Json line) {
      line["name"] = result.kind == Kind::run ? "" : label_of(run);
      line["style"] = r;
      chart["lines"].push_back(std::move(line));
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
void add_figure(Json& figures, const std::string& remark, Json chart) {
  if (std::ranges::any_of(chart.at("lines"), [](const Json& line) { return !line.at("points").empty(); })) {
    const std::string title = chart.at("title");
    figures.push_back(figure(title, remark, std::move(chart)));
  }
}

// Plots the learning rate and gradient norm of a single run's first seed.
void add_optimizer_figures(Json& figures, const ComparedRun& run) {
  std::vector<Point> rates, norms;
  for (const train::TrainingPoint& point : run.trained.front().log.training) {
    rates.push_back({static_cast<double>(point.step), point.learning_rate});
    norms.push_back({static_cast<double>(point.step), point.gradient_norm});
  }
  const auto chart_of = [](const char* title, const std::vector<Point>& points) {
    return line_chart(title, "steps", Json::array({{{"points", downsampled(points)}, {"dots", false}}}));
  };
  Json rate = chart_of("Learning rate", rates);
  rate["y"] = "from_zero";
  add_figure(figures, "at each logged step", std::move(rate));
  add_figure(figures, "before clipping, at each logged step; logarithmic", chart_of("Gradient norm", norms));
}

Json legend(const std::vector<ComparedRun>& runs) {
  Json items = Json::array();
  for (std::size_t r = 0; r < std::min(runs.size(), kMostCurves); ++r) {
    items.push_back({{"name", runs[r].name},
                     {"style", r},
                     {"text", with_deviation(runs[r].over_seeds(runs[r].headline_kind().name))}});
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
             fmt::format("{} is better{}{}{}{}", better_direction(kind), scale_of(kind),
                         in_part ? "; always the same part of the validation data, evenly spread" : "",
                         seeds ? "; mean over the seeds, shaded from the lowest to the highest" : "",
                         runs.size() > kMostCurves ? fmt::format("; the first {} runs", kMostCurves) : ""),
             charts.steps);
  add_figure(figures, "seconds of training, without evaluation", charts.seconds);
  if (std::ranges::any_of(charts.losses.at("lines"),
                          [](const Json& line) { return line.contains("faint") && !line.at("points").empty(); })) {
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
