// How the runs learned, and how far apart they ended.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "curves.h"
#include "headroom/draw/charts.h"
#include "headroom/draw/svg.h"
#include "markup.h"
#include "plan.h"
#include "sections.h"
#include "words.h"

namespace headroom::compare {
namespace {

constexpr std::size_t kMostCurves = draw::kStyles;  // more are not told apart

// The paired differences from the first model; nothing where there are no intervals.
std::string difference_chart(const std::vector<ComparedRun>& runs) {
  draw::IntervalChart chart{.title = "Difference from " + runs.front().name, .rows = {}};
  for (std::size_t r = 1; r < runs.size(); ++r) {
    if (const std::optional<Interval> difference = headline_difference(runs[r], runs.front())) {
      chart.rows.push_back({.name = runs[r].name,
                            .mean = difference->mean,
                            .low = difference->low,
                            .high = difference->high,
                            .text = interval_text(*difference),
                            .style = r});
    }
  }
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  return chart.rows.empty()
             ? ""
             : figure("Difference from " + draw::escape(runs.front().name),
                      fmt::format("validation {}, {} is better; the mean over the seeds and its 95% "
                                  "interval, which tells a difference from chance where it does not reach zero",
                                  draw::escape(kind.words), kind.better == tasks::Better::higher ? "higher" : "lower"),
                      draw::interval_chart(chart), /*wide=*/true);
}

struct Charts {
  std::string steps, seconds, losses, experts;
};

Charts draw(const std::vector<ComparedRun>& runs, const std::string& what) {
  draw::LineChart steps{.title = what + " over training steps", .x_label = "steps"};
  draw::LineChart seconds{.title = what + " over training time", .x_label = "seconds"};
  draw::LineChart losses{.title = "Training and validation loss", .x_label = "steps"};
  draw::LineChart experts{.title = "How evenly tokens spread over experts", .x_label = "steps"};
  experts.linear = true;
  for (std::size_t r = 0; r < std::min(runs.size(), kMostCurves); ++r) {
    Curves of_run = curves_of(runs[r], r);
    steps.lines.push_back(std::move(of_run.over_steps));
    seconds.lines.push_back(std::move(of_run.over_seconds));
    losses.lines.push_back(std::move(of_run.training_loss));
    losses.lines.push_back(std::move(of_run.validation_loss));
    if (!of_run.expert_use.points.empty()) {
      experts.lines.push_back(std::move(of_run.expert_use));
    }
  }
  const bool training = std::any_of(losses.lines.begin(), losses.lines.end(),
                                    [](const draw::Line& line) { return line.faint && !line.points.empty(); });
  return {draw::line_chart(steps), draw::line_chart(seconds), training ? draw::line_chart(losses) : "",
          experts.lines.empty() ? "" : draw::line_chart(experts)};
}

std::string legend(const std::vector<ComparedRun>& runs) {
  std::string items;
  for (std::size_t r = 0; r < std::min(runs.size(), kMostCurves); ++r) {
    items +=
        fmt::format("<li>{} {}: {}</li>", draw::line_sample(r), draw::escape(runs[r].name), headline_text(runs[r]));
  }
  return "<ul class='legend'>" + items + "</ul>";
}

}  // namespace

std::string learning_section(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  const std::string what = "Validation " + kind.words;
  const Charts charts = draw(runs, what);
  const std::string best = runs.size() > kMostCurves ? fmt::format("; the first {} runs", kMostCurves) : "";
  const std::string band =
      runs.front().trained.size() > 1 ? "; the mean, shaded from the lowest to the highest seed" : "";
  const char* better = kind.better == tasks::Better::higher ? "higher" : "lower";
  std::string html =
      "<h2>Learning</h2>" + legend(runs) + "<div class='grid'>" +
      figure(what + " over steps", fmt::format("{} is better; logarithmic{}{}", better, band, best), charts.steps) +
      figure(what + " over time", "seconds of training, evaluation not counted", charts.seconds);
  if (!charts.losses.empty()) {
    html += figure("Training and validation loss", "of the first seed; thin: training, as logged", charts.losses);
  }
  if (!charts.experts.empty()) {
    html += figure("Use of experts",
                   "entropy of the tokens' shares, of the first seed's validations: 1 is even, 0 is one expert alone; "
                   "the mean over all banks, shaded from the least to the most even",
                   charts.experts);
  }
  return html + (result.kind == Kind::sweep ? "" : difference_chart(runs)) + "</div>\n";
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
  return html.empty() ? "" : "<h2>What each key does</h2><div class='grid'>" + html + "</div>\n";
}

}  // namespace headroom::compare
