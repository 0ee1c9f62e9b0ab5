// How the runs learned.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "curves.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "markup.h"
#include "sections.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kMostCurves = draw::kStyles;  // more are not told apart

// A figure, unless there is nothing to draw.
std::string line_figure(const std::string& remark, const draw::LineChart& chart) {
  const bool empty =
      std::all_of(chart.lines.begin(), chart.lines.end(), [](const draw::Line& line) { return line.points.empty(); });
  return empty ? "" : figure(chart.title, remark, draw::line_chart(chart));
}

struct Charts {
  draw::LineChart steps, seconds, losses, experts;
};

Charts charts_of(const std::vector<ComparedRun>& runs, const std::string& what) {
  Charts charts{.steps = {.title = what + " over steps", .x_label = "steps", .end_values = true},
                .seconds = {.title = what + " over time", .x_label = "seconds", .end_values = true},
                .losses = {.title = "Training and validation loss", .x_label = "steps", .end_values = true},
                .experts = {.title = "Use of experts", .x_label = "steps", .y = draw::YScale::shares}};
  for (std::size_t r = 0; r < std::min(runs.size(), kMostCurves); ++r) {
    Curves of_run = curves_of(runs[r], r);
    charts.steps.lines.push_back(std::move(of_run.over_steps));
    charts.seconds.lines.push_back(std::move(of_run.over_seconds));
    charts.losses.lines.push_back(std::move(of_run.training_loss));
    charts.losses.lines.push_back(std::move(of_run.validation_loss));
    charts.experts.lines.push_back(std::move(of_run.expert_use));
  }
  return charts;
}

// A run by itself is the only one in each chart.
void leave_names_out(Charts& charts) {
  for (draw::LineChart* chart : {&charts.steps, &charts.seconds, &charts.losses, &charts.experts}) {
    for (draw::Line& line : chart->lines) {
      line.name.clear();
    }
  }
}

// Of a run by itself: what its optimizer did.
std::string optimizer_figures(const ComparedRun& run) {
  OptimizerCurves curves = optimizer_curves_of(run);
  const draw::LineChart rate{.title = "Learning rate",
                             .x_label = "steps",
                             .lines = {std::move(curves.learning_rate)},
                             .y = draw::YScale::from_zero,
                             .end_values = true};
  const draw::LineChart norm{
      .title = "Gradient norm", .x_label = "steps", .lines = {std::move(curves.gradient_norm)}, .end_values = true};
  return line_figure("of each logged step", rate) +
         line_figure("before clipping, of each logged step; logarithmic", norm);
}

std::string legend(const std::vector<ComparedRun>& runs) {
  std::string items;
  for (std::size_t r = 0; r < std::min(runs.size(), kMostCurves) && runs.size() > 1; ++r) {
    items +=
        fmt::format("<li>{} {}: {}</li>", draw::line_sample(r), draw::escape(runs[r].name), headline_text(runs[r]));
  }
  return items.empty() ? "" : "<ul class='legend'>" + items + "</ul>";
}

}  // namespace

std::string learning_section(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  const bool seeds = runs.front().trained.size() > 1;
  Charts charts = charts_of(runs, "Validation " + kind.words);
  if (result.kind == Kind::run) {
    leave_names_out(charts);
  }
  const bool training = std::any_of(charts.losses.lines.begin(), charts.losses.lines.end(),
                                    [](const draw::Line& line) { return line.faint && !line.points.empty(); });
  const std::string best = runs.size() > kMostCurves ? fmt::format("; the first {} runs", kMostCurves) : "";
  const std::string figures =
      line_figure(
          fmt::format("{} is better; logarithmic{}{}", kind.better == tasks::Better::higher ? "higher" : "lower",
                      seeds ? "; the mean, shaded from the lowest to the highest seed" : "", best),
          charts.steps) +
      line_figure("seconds of training, evaluation not counted", charts.seconds) +
      (!training ? ""
                 : line_figure(seeds ? "means over the seeds; thin: training, as logged" : "thin: training, as logged",
                               charts.losses)) +
      (result.kind == Kind::run ? optimizer_figures(runs.front()) : "") +
      line_figure(
          "entropy of the tokens' shares: 1 is even, 0 is one expert alone; the mean over all banks, shaded from "
          "the least to the most even",
          charts.experts);
  return figures.empty() ? "" : "<h2>Learning</h2>" + legend(runs) + "<div class='grid'>" + figures + "</div>\n";
}

namespace {

// "learning_rate and top_k": what is varied besides key number `key`.
std::string other_keys(const std::vector<Variation>& variations, std::size_t key) {
  std::vector<std::string> names;
  for (std::size_t other = 0; other < variations.size(); ++other) {
    if (other != key && variations[other].values.size() > 1) {
      names.push_back(variations[other].key.substr(variations[other].key.rfind('.') + 1));
    }
  }
  return enumerated(names);
}

}  // namespace

// A line for each combination of the other keys where those are few, else the best of all.
std::string value_section(const CompareResult& result) {
  if (result.kind != Kind::sweep) {
    return "";
  }
  const tasks::FigureKind& kind = tasks::headline(result.runs.front().task().figures());
  std::string html;
  for (std::size_t key = 0; key < result.variations.size(); ++key) {
    const Variation& variation = result.variations[key];
    if (variation.values.size() > 1) {
      const char* better = kind.better == tasks::Better::higher ? "higher" : "lower";
      const std::string others = other_keys(result.variations, key);
      html += figure("Validation " + kind.words + " against " + draw::escape(variation.key),
                     fmt::format("{} is better; logarithmic{}{}", better, others.empty() ? "" : "; a line for each ",
                                 draw::escape(others)),
                     draw::line_chart(values_chart(result, key)));
    }
  }
  html += quality_against_cost(result.runs);
  return html.empty() ? "" : "<h2>What each key does</h2><div class='grid'>" + html + "</div>\n";
}

}  // namespace headroom::compare
