// The comparison as a page.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "headroom/analysis/compare.h"
#include "headroom/core/log.h"
#include "headroom/core/svg.h"
#include "markup.h"
#include "style.h"
#include "svg.h"
#include "table.h"

namespace headroom::analysis {
namespace {

using Runs = std::vector<ComparedRun>;

// The best figure of a column, when the runs differ in it.
bool is_best(const Runs& runs, std::size_t column, Better better, double value) {
  if (better == Better::neither || runs.size() < 2) {
    return false;
  }
  double low = value, high = value;
  for (const ComparedRun& run : runs) {
    const double other = row_of(run, runs.front())[column].value;
    low = std::min(low, other);
    high = std::max(high, other);
  }
  return low < high && value == (better == Better::lower ? low : high);
}

std::string table(const Runs& runs) {
  std::string html = "<div class='card scroll'><table><thead><tr>";
  const std::vector<Column> all = columns(runs.front().task());
  for (std::size_t i = 0; i < all.size(); ++i) {
    html += fmt::format("<th scope='col'{}>{}<br>{}</th>", i < 2 ? " class='text'" : "", all[i].above, all[i].name);
  }
  html += "</tr></thead><tbody>\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::vector<Cell> cells = row_of(runs[r], runs.front());
    html += fmt::format("<tr><td class='name'>{}{}</td><td class='text'>{}</td>", line_sample(r), escape(cells[0].text),
                        escape(cells[1].text));
    for (std::size_t i = 2; i < cells.size(); ++i) {
      html += fmt::format("<td{}>{}</td>", is_best(runs, i, all[i].better, cells[i].value) ? " class='best'" : "",
                          escape(cells[i].text));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string capitalised(std::string words) {
  words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  return words;
}

std::string table_note(const tasks::Task& task) {
  std::vector<std::string> shown;
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(task.figures())) {
    shown.push_back(kind.words);
  }
  return fmt::format(
      "<p class='note'>\u2605 the best of its column. {} {} of the validation data. Attention MACs and memory are "
      "counted, for one layer and sequence; speed, peak memory and time are measured.</p>",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are");
}

std::string figure(const std::string& caption, const std::string& remark, const std::string& chart) {
  return fmt::format("<figure class='card'><figcaption>{} <small>{}</small></figcaption>{}</figure>\n", caption, remark,
                     chart);
}

std::string curves(const Runs& runs) {
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  const std::string what = "Validation " + kind.words;
  LineChart over_steps{.title = what + " over training steps", .x_label = "steps", .lines = {}};
  LineChart over_seconds{.title = what + " over training time", .x_label = "seconds", .lines = {}};
  std::string legend = "<ul class='legend'>";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    Line steps{.name = runs[r].name, .points = {}, .style = r}, seconds = steps;
    for (const train::ValidationPoint& point : runs[r].result.validation) {
      const double value = tasks::figure(point.figures, kind.name);
      steps.points.push_back({static_cast<double>(point.step), value});
      seconds.points.push_back({point.seconds, value});
    }
    over_steps.lines.push_back(std::move(steps));
    over_seconds.lines.push_back(std::move(seconds));
    legend += fmt::format("<li>{} {}: {}</li>", line_sample(r), escape(runs[r].name), plain_number(runs[r].headline()));
  }
  return legend + "</ul><div class='grid'>" +
         figure(what + " over steps",
                kind.better == tasks::Better::higher ? "higher is better; logarithmic" : "lower is better; logarithmic",
                line_chart(over_steps)) +
         figure(what + " over time", "seconds of training, evaluation not counted", line_chart(over_seconds)) +
         "</div>\n";
}

struct Quantity {
  const char* title;
  const char* remark;
  double (*value)(const ComparedRun&);
  std::string (*text)(double);
};

std::string bars(const Runs& runs) {
  static constexpr Quantity kQuantities[] = {
      {"Attention MACs", "counted, a layer and sequence; lower is better",
       [](const ComparedRun& run) { return static_cast<double>(run.attention_macs); }, short_number},
      {"Attention memory", "counted, numbers a layer and sequence; lower is better",
       [](const ComparedRun& run) { return static_cast<double>(run.attention_memory); }, short_number},
      {"MACs of a training step", "counted, the whole model as executed; lower is better",
       [](const ComparedRun& run) { return run.executed.value("step_macs", 0.0); }, short_number},
      {"Parameters", "counted, the whole model",
       [](const ComparedRun& run) { return static_cast<double>(run.result.parameters); }, short_number},
      {"Training speed", "measured, tokens a second; higher is better",
       [](const ComparedRun& run) { return run.result.tokens_per_second; }, short_number},
      {"Peak memory", "measured, of the whole process; lower is better",
       [](const ComparedRun& run) { return static_cast<double>(run.result.peak_memory_bytes); }, format_bytes},
  };
  std::string html = "<div class='grid'>";
  for (const Quantity& quantity : kQuantities) {
    BarChart chart{.title = quantity.title, .bars = {}};
    for (std::size_t r = 0; r < runs.size(); ++r) {
      const double value = quantity.value(runs[r]);
      chart.bars.push_back({.name = runs[r].name, .value = value, .text = quantity.text(value), .style = r});
    }
    html += figure(quantity.title, quantity.remark, bar_chart(chart));
  }
  return html + "</div>\n";
}

std::string samples(const CompareResult& result) {
  std::string html;
  for (std::size_t p = 0; p < result.prompts.size(); ++p) {
    html += "<div class='grid samples'>";
    for (std::size_t r = 0; r < result.runs.size(); ++r) {
      const ComparedRun& run = result.runs[r];
      if (p < run.samples.size()) {
        html +=
            fmt::format("<section class='card'><h3>{} {}</h3><pre><span class='prompt'>{}</span>{}</pre></section>\n",
                        line_sample(r), escape(run.name), escape(result.prompts[p]), escape(run.samples[p]));
      }
    }
    html += "</div>\n";
  }
  return html.empty() ? html
                      : fmt::format(
                            "<h2>Sample text</h2><p class='note'>Every model continues the same beginning "
                            "(grey): {}.</p>{}",
                            escape(result.sampling), html);
}

std::string configurations(const Runs& runs) {
  std::string html = "<h2>Configurations</h2><div class='card'>";
  for (const ComparedRun& run : runs) {
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escape(run.name),
                        escape(config::to_toml(run.config)));
  }
  return html + "</div>\n";
}

std::string circumstances(const CompareResult& result) {
  std::string machines;
  for (const ComparedRun& run : result.runs) {
    if (machines.find(run.machine) == std::string::npos) {
      machines += (machines.empty() ? "" : "; ") + run.machine;
    }
  }
  const auto entry = [](const char* term, const std::string& text) {
    return text.empty() ? std::string() : fmt::format("<dt>{}</dt><dd>{}</dd>", term, escape(text));
  };
  return "<h2>How it was measured</h2><div class='card'><dl>" + entry("Command", result.command) +
         entry("Machine", machines) + entry("Validation", std::string(result.runs.front().task().protocol())) +
         entry("Attention costs",
               "multiply-accumulates and numbers kept for the backward pass, of one layer and one "
               "sequence, counted as in the SwitchHead paper; those of a training step are counted "
               "as executed, three times the forward products of the whole model") +
         entry("Peak memory",
               "the highest resident memory of the process during the run, program and libraries "
               "included") +
         entry("Time", "wall clock of the training steps alone: evaluation and checkpoints are not counted") +
         entry("Seeds", "one run a model: small differences may be chance") + "</dl></div>\n";
}

}  // namespace

std::string render_report(const CompareResult& result) {
  std::string notes;
  for (const std::string& note : result.notes) {
    notes += fmt::format("<p class='warn'>{}</p>\n", escape(note));
  }
  const std::string about = result.about.empty() ? "" : fmt::format("<p class='note'>{}</p>\n", escape(result.about));
  return fmt::format(
             "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
             "<meta name='viewport' content='width=device-width, initial-scale=1'><title>{0}</title><style>{1}</style>"
             "</head>\n<body><main><header><p class='brand'>Headroom</p><h1>{0}</h1><p class='lead'>{2}</p>{3}"
             "</header>\n",
             escape(result.title), kStyleSheet, escape(result.conclusion), about + notes) +
         "<h2>Result</h2>" + table(result.runs) + table_note(result.runs.front().task()) + "<h2>Learning</h2>" +
         curves(result.runs) + "<h2>Costs</h2>" + bars(result.runs) + samples(result) + configurations(result.runs) +
         circumstances(result) + "</main></body></html>\n";
}

}  // namespace headroom::analysis
