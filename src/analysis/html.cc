// The comparison as a page.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "curves.h"
#include "headroom/analysis/compare.h"
#include "headroom/core/log.h"
#include "headroom/core/svg.h"
#include "markup.h"
#include "plan.h"
#include "statistics.h"
#include "style.h"
#include "svg.h"
#include "table.h"
#include "words.h"

namespace headroom::analysis {
namespace {

// The best figure of a column, when the runs differ in it.
bool is_best(const std::vector<ComparedRun>& runs, std::size_t column, Better better, double value) {
  if (better == Better::neither || runs.size() < 2) {
    return false;
  }
  double low = value, high = value;
  for (const ComparedRun& run : runs) {
    const double other = row_of(run, runs)[column].value;
    low = std::min(low, other);
    high = std::max(high, other);
  }
  return low < high && value == (better == Better::lower ? low : high);
}

std::string table(const std::vector<ComparedRun>& runs) {
  std::string html = "<div class='card scroll'><table><thead><tr>";
  const std::vector<Column> all = columns(runs);
  for (std::size_t i = 0; i < all.size(); ++i) {
    html +=
        fmt::format("<th scope='col'{}>{}<br>{}</th>", all[i].words ? " class='text'" : "", all[i].above, all[i].name);
  }
  html += "</tr></thead><tbody>\n";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const std::vector<Cell> cells = row_of(runs[r], runs);
    html += fmt::format("<tr><td class='name'>{}{}</td>", line_sample(r), escape(cells[0].text));
    for (std::size_t i = 1; i < cells.size(); ++i) {
      html += fmt::format("<td{}>{}</td>",
                          is_best(runs, i, all[i].better, cells[i].value) ? " class='best'"
                          : all[i].words                                  ? " class='text'"
                                                                          : "",
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

std::string table_note(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> shown;
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(runs.front().task().figures())) {
    shown.push_back(kind.words);
  }
  return fmt::format(
      "<p class='note'>\u2605 the best of its column. {} {} of the validation data. Attention MACs and memory are "
      "counted, for one layer and sequence; speed, peak memory and time are measured.{}</p>",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are",
      runs.front().trained.size() < 2 ? ""
                                      : " Figures are means over the seeds, after \u00b1 their standard deviation; "
                                        "peak memory is the highest. The paired difference from the first model is "
                                        "taken seed by seed, in brackets its 95% interval by Student's t.");
}

std::string headline_text(const ComparedRun& run) {
  const std::vector<double> values = run.over_seeds(tasks::headline(run.task().figures()).name);
  return with_deviation(mean(values), sample_deviation(values));
}

// Every combination that was tried, the taken one in bold.
std::string tuning(const std::vector<ComparedRun>& runs) {
  std::string rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    for (const Tried& tried : runs[r].tried) {
      rows += fmt::format("<tr><td class='name'>{}{}</td><td class='text'>{}</td><td{}>{}</td></tr>\n", line_sample(r),
                          escape(shorten(runs[r].name, 24)), escape(describe(tried.values)),
                          tried.chosen ? " class='best'" : "",
                          std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged");
    }
  }
  const std::string words = escape(tasks::headline(runs.front().task().figures()).words);
  return rows.empty() ? rows
                      : fmt::format(
                            "<h2>Tuning</h2><div class='card scroll narrow'><table><thead><tr><th scope='col'>"
                            "model</th><th scope='col' class='text'>tried</th><th scope='col'>validation<br>{}"
                            "</th></tr></thead><tbody>\n{}</tbody></table></div><p class='note'>Each model "
                            "was trained with all of these and the first seed; all its seeds have the values "
                            "with the best figure, \u2605.</p>\n",
                            words, rows);
}

std::string figure(const std::string& caption, const std::string& remark, const std::string& chart) {
  return fmt::format("<figure class='card'><figcaption>{} <small>{}</small></figcaption>{}</figure>\n", caption, remark,
                     chart);
}

// The paired differences from the first model; nothing where there are no intervals.
std::string differences(const std::vector<ComparedRun>& runs) {
  IntervalChart chart{.title = "Difference from " + runs.front().name, .rows = {}};
  for (std::size_t r = 1; r < runs.size(); ++r) {
    if (const std::optional<Interval> difference = headline_difference(runs[r], runs.front())) {
      chart.rows.push_back({runs[r].name, *difference, interval_text(*difference), r});
    }
  }
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  return chart.rows.empty()
             ? ""
             : figure("Difference from " + escape(runs.front().name),
                      fmt::format("validation {}, {} is better; the mean over the seeds and its 95% "
                                  "interval: left or right of zero as a whole, it is no chance",
                                  escape(kind.words), kind.better == tasks::Better::higher ? "higher" : "lower"),
                      interval_chart(chart));
}

std::string curves(const std::vector<ComparedRun>& runs) {
  const tasks::FigureKind& kind = tasks::headline(runs.front().task().figures());
  const std::string what = "Validation " + kind.words;
  LineChart over_steps{.title = what + " over training steps", .x_label = "steps", .lines = {}};
  LineChart over_seconds{.title = what + " over training time", .x_label = "seconds", .lines = {}};
  std::string legend = "<ul class='legend'>";
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Curves of_run = curves_of(runs[r], r);
    over_steps.lines.push_back(of_run.over_steps);
    over_seconds.lines.push_back(of_run.over_seconds);
    legend += fmt::format("<li>{} {}: {}</li>", line_sample(r), escape(runs[r].name), headline_text(runs[r]));
  }
  return legend + "</ul><div class='grid'>" +
         figure(what + " over steps",
                kind.better == tasks::Better::higher ? "higher is better; logarithmic" : "lower is better; logarithmic",
                line_chart(over_steps)) +
         figure(what + " over time", "seconds of training, evaluation not counted", line_chart(over_seconds)) +
         differences(runs) + "</div>\n";
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
      {"MACs of a training step", "counted, the whole model as executed; lower is better",
       [](const ComparedRun& run) { return run.executed.value("step_macs", 0.0); }, short_number},
      {"Parameters", "counted, the whole model",
       [](const ComparedRun& run) { return static_cast<double>(run.result().parameters); }, short_number},
      {"Training speed", "measured, tokens a second; higher is better",
       [](const ComparedRun& run) { return run.mean_of(&train::TrainResult::tokens_per_second); }, short_number},
      {"Peak memory", "measured, of the whole process; lower is better",
       [](const ComparedRun& run) { return run.peak_memory_bytes(); }, format_bytes},
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

std::string configurations(const std::vector<ComparedRun>& runs) {
  std::string html = "<h2>Configurations</h2><div class='card'>";
  for (const ComparedRun& run : runs) {
    html += fmt::format("<details><summary>{}</summary><pre>{}</pre></details>\n", escape(run.name),
                        escape(config::to_toml(run.config)));
  }
  return html + "</div>\n";
}

std::string describe_seeds(const std::vector<ComparedRun>& runs) {
  if (runs.front().trained.size() < 2) {
    return "one run a model: small differences may be chance";
  }
  std::vector<std::string> seeds;
  for (const TrainedRun& trained : runs.front().trained) {
    seeds.push_back(std::to_string(trained.seed));
  }
  return fmt::format("{}: of parameters, dropout and shuffling; of one seed, all models see the data in the same order",
                     enumerated(seeds));
}

std::string circumstances(const CompareResult& result) {
  std::string machines;
  for (const ComparedRun& run : result.runs) {
    for (const TrainedRun& trained : run.trained) {
      if (machines.find(trained.machine) == std::string::npos) {
        machines += (machines.empty() ? "" : "; ") + trained.machine;
      }
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
         entry("Seeds", describe_seeds(result.runs)) + "</dl></div>\n";
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
         "<h2>Result</h2>" + table(result.runs) + table_note(result.runs) + tuning(result.runs) + "<h2>Learning</h2>" +
         curves(result.runs) + "<h2>Costs</h2>" + bars(result.runs) + samples(result) + configurations(result.runs) +
         circumstances(result) + "</main></body></html>\n";
}

}  // namespace headroom::analysis
