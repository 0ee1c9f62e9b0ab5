// What the runs cost, and what they give for it.
#include <algorithm>

#include "curves.h"
#include "headroom/core/log.h"
#include "headroom/draw/charts.h"
#include "markup.h"
#include "sections.h"

namespace headroom::compare {
namespace {

double step_macs(const ComparedRun& run) {
  return run.executed.value("step_macs", 0.0);
}

struct Quantity {
  const char* title;
  const char* remark;
  double (*value)(const ComparedRun&);
  std::string (*text)(double);
};

std::string bars(const std::vector<ComparedRun>& runs) {
  static constexpr Quantity kQuantities[] = {
      {"Attention MACs", "counted, a layer and sequence; lower is better",
       [](const ComparedRun& run) { return static_cast<double>(run.attention_macs); }, short_number},
      {"Attention memory", "counted, numbers a layer and sequence; lower is better",
       [](const ComparedRun& run) { return static_cast<double>(run.attention_memory); }, short_number},
      {"MACs of a training step", "counted, the whole model, pairs that a mask hides included; lower is better",
       step_macs, short_number},
      {"Parameters", "counted, the whole model",
       [](const ComparedRun& run) { return static_cast<double>(run.result().parameters); }, short_number},
      {"Training speed", "measured, tokens a second; higher is better",
       [](const ComparedRun& run) { return run.mean_of(&train::TrainResult::tokens_per_second); }, short_number},
      {"Peak memory", "measured, of the whole process; lower is better",
       [](const ComparedRun& run) { return run.peak_memory_bytes(); }, format_bytes},
  };
  std::string html;
  for (const Quantity& quantity : kQuantities) {
    const bool known =
        std::any_of(runs.begin(), runs.end(), [&](const auto& run) { return quantity.value(run) > 0.0; });
    if (!known) {
      continue;
    }
    draw::BarChart chart{.title = quantity.title, .bars = {}};
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const double value = quantity.value(runs[r]);
      chart.bars.push_back({.name = label_of(runs[r]),
                            .value = value,
                            .text = value > 0.0 ? quantity.text(value) : kUnknown,
                            .style = r});
    }
    html += figure(quantity.title, quantity.remark, draw::bar_chart(chart));
  }
  return html;
}

// Nothing where all cost the same.
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
                        draw::scatter_chart(chart), /*wide=*/true);
}

}  // namespace

std::string cost_section(const CompareResult& result) {
  return "<h2>Costs</h2><div class='grid'>" + quality_against_cost(result.runs) + bars(result.runs) + "</div>\n";
}

}  // namespace headroom::compare
