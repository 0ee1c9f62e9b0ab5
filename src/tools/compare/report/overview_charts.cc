// The two drawings beside the table: how sure the differences are, and what quality was paid with.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "curves.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "markup.h"
#include "sections.h"
#include "tools/compare/figures/words.h"

namespace headroom::compare {
namespace {

double step_macs(const ComparedRun& run) {
  return run.executed.value("step_macs", 0.0);
}

}  // namespace

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
                      fmt::format("validation {}, {} is better; the mean over the seeds and its 95% interval: no "
                                  "difference is shown where it reaches zero",
                                  draw::escape(kind.words), kind.better == tasks::Better::higher ? "higher" : "lower"),
                      draw::interval_chart(chart));
}

std::string quality_against_cost(const std::vector<ComparedRun>& runs) {
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  draw::ScatterChart chart{.title = "Validation " + kind.words + " against the MACs of a training step",
                           .x_label = "MACs of a training step",
                           .points = {}};
  for (std::size_t r = 0; r < runs.size(); ++r) {
    chart.points.push_back({label_of(runs[r]), {step_macs(runs[r]), runs[r].headline()}, r});
  }
  const bool alike = std::all_of(runs.begin(), runs.end(),
                                 [&](const ComparedRun& run) { return step_macs(run) == step_macs(runs.front()); });
  const bool higher = kind.better == tasks::Better::higher;
  return alike ? ""
               : figure("Quality against cost",
                        fmt::format("validation {} and MACs of a training step, both logarithmic; further {} left is "
                                    "better",
                                    kind.words, higher ? "up and" : "down and"),
                        draw::scatter_chart(chart));
}

}  // namespace headroom::compare
