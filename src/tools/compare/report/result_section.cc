// The tables of results, tuning and costs.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "formatting.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "sections.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/run/plan.h"

namespace headroom::compare {
namespace {

bool is_shown(const Column& column) {
  return !column.cost && column.medium != Medium::terminal;
}

std::string table(const CompareResult& result) {
  const Table table = table_of(result);
  std::string head, rows;
  for (const Column& column : table.columns) {
    if (is_shown(column)) {
      head += fmt::format("<th scope='col'{}>{}<br>{}</th>", column.words ? " class='text'" : "", column.above,
                          draw::escape(column.name));
    }
  }
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    rows += "<tr>";
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      const Cell& cell = table.rows[r][i];
      if (i == 0) {
        rows += fmt::format("<td class='name'>{}{}</td>", draw::line_sample(r), draw::escape(cell.text));
      } else if (is_shown(table.columns[i])) {
        rows += fmt::format("<td{}>{}</td>",
                            cell.best                ? " class='best'"
                            : table.columns[i].words ? " class='text'"
                                                     : "",
                            draw::escape(cell.text));
      }
    }
    rows += "</tr>\n";
  }
  return html_table(head, rows);
}

// Lists the figures of a single run, for which there is nothing to compare.
std::string facts(const CompareResult& result) {
  const Table table = table_of(result);
  std::string html;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    if (column.medium != Medium::terminal && column.name != "model") {
      html += fmt::format("<div><dt>{} {}</dt><dd>{}</dd></div>", column.above, draw::escape(column.name),
                          draw::escape(table.rows[0][i].text));
    }
  }
  return "<dl class='card facts'>" + html + "</dl>\n";
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
  const bool single = runs.size() == 1;
  return fmt::format(
      "<p class='note'>{}{} {} measured on the validation data.{}{}</p>", single ? "" : "\u2605 best of its column. ",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are",
      runs.front().trained.size() < 2 ? ""
                                      : " Figures are means over the seeds \u00b1 their standard deviation. Paired "
                                        "differences from the first model "
                                        "are taken seed by seed; brackets are their 95% intervals by Student's t.",
      single ? " Attention MACs and memory are counted for one layer and sequence, MACs of a training step for the "
               "whole model; speed, peak memory and time are measured."
             : "");
}

// Formats the run's figure with these values.
std::string tried_cell(const ComparedRun& run, const Values& values) {
  for (const TuningResult& tried : run.tuning) {
    if (tried.values == values) {
      return fmt::format("<td{}>{}</td>", tried.chosen ? " class='best'" : "",
                         std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged");
    }
  }
  return fmt::format("<td>{}</td>", kUnknown);
}

// Builds a table with one row per tried combination and one column per model.
std::string tuning(const std::vector<ComparedRun>& runs) {
  std::vector<Values> combinations;
  std::string head = "<th scope='col'>tried</th>", rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    head += fmt::format("<th scope='col'>{}<br>{}</th>", draw::line_sample(r), draw::escape(shorten(runs[r].name, 24)));
    for (const TuningResult& tried : runs[r].tuning) {
      if (std::find(combinations.begin(), combinations.end(), tried.values) == combinations.end()) {
        combinations.push_back(tried.values);
      }
    }
  }
  for (const Values& values : combinations) {
    rows += fmt::format("<tr><td class='name'>{}</td>", draw::escape(describe(values)));
    for (const ComparedRun& run : runs) {
      rows += tried_cell(run, values);
    }
    rows += "</tr>\n";
  }
  return rows.empty() ? rows
                      : "<h2>Tuning</h2>" + html_table(head, rows, " narrow") +
                            fmt::format(
                                "<p class='note'>Validation {} with the first seed; all seeds of a model use its best "
                                "values, \u2605.</p>\n",
                                draw::escape(runs.front().headline_kind().words));
}

// Shows differences with intervals, and quality against cost.
std::string overview(const CompareResult& result) {
  if (result.kind == Kind::sweep) {  // has its own charts of its keys
    return "";
  }
  const std::string charts = difference_chart(result.runs) + quality_against_cost(result.runs);
  return charts.empty() ? "" : "<div class='grid overview'>" + charts + "</div>\n";
}

}  // namespace

std::string headline_text(const ComparedRun& run) {
  if (!run.has_figure()) {
    return kUnknown;
  }
  const std::vector<double> values = run.over_seeds(run.headline_kind().name);
  return with_deviation(values);
}

std::string result_section(const CompareResult& result) {
  return "<h2>Result</h2>" + (result.runs.size() == 1 ? facts(result) : table(result)) + table_note(result.runs) +
         overview(result) + tuning(result.runs);
}

namespace {

// A cost column of the table; columns without any known value are left out.
struct Costs {
  Column column;
  std::vector<Cell> cells;
  double most = 0.0;
  bool alike = true;  // the same for all runs
};

std::vector<Costs> costs_of(const Table& table) {
  std::vector<Costs> all;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (!table.columns[c].cost || table.columns[c].medium == Medium::terminal) {
      continue;
    }
    Costs costs{.column = table.columns[c]};
    for (const std::vector<Cell>& row : table.rows) {
      costs.cells.push_back(row[c]);
      costs.most = std::isfinite(row[c].value) ? std::max(costs.most, row[c].value) : costs.most;
      costs.alike = costs.alike && row[c].value == table.rows.front()[c].value;
    }
    if (costs.most > 0.0) {
      all.push_back(std::move(costs));
    }
  }
  return all;
}

// Formats the cost, its ratio to the first run's cost, and a bar relative to the largest cost.
std::string cost_cell(const Costs& costs, std::size_t r) {
  const Cell& cell = costs.cells[r];
  const double ratio = cell.value / costs.cells.front().value;
  return fmt::format("<td class='cost{}'>{}{}{}</td>", cell.best ? " least" : "", draw::escape(cell.text),
                     r == 0 || !std::isfinite(ratio) ? "" : fmt::format(" <small>{}</small>", ratio_text(ratio)),
                     draw::small_bar(cell.value / costs.most, r));
}

std::string cost_table(const std::vector<ComparedRun>& runs, const std::vector<Costs>& all) {
  std::string head = "<th scope='col'></th>", rows;
  for (const Costs& costs : all) {
    head += fmt::format("<th scope='col'>{}<br>{}</th>", costs.column.above, costs.column.name);
  }
  for (std::size_t r = 0; r < runs.size(); ++r) {
    rows += fmt::format("<tr><td class='name'>{}{}</td>", draw::line_sample(r),
                        draw::escape(shorten(label_of(runs[r]), 24)));
    for (const Costs& costs : all) {
      rows += cost_cell(costs, r);
    }
    rows += "</tr>\n";
  }
  return html_table(head, rows);
}

}  // namespace

std::string cost_section(const CompareResult& result) {
  if (result.runs.size() < 2) {  // a single run's costs are listed with its figures
    return "";
  }
  std::vector<Costs> all = costs_of(table_of(result));
  std::vector<std::string> alike;
  for (const Costs& costs : all) {
    if (costs.alike) {
      alike.push_back(fmt::format("{} {} ({})", costs.column.above, costs.column.name, costs.cells.front().text));
    }
  }
  all.erase(std::remove_if(all.begin(), all.end(), [](const Costs& costs) { return costs.alike; }), all.end());
  return "<h2>Costs</h2>" + (all.empty() ? "" : cost_table(result.runs, all)) +
         fmt::format(
             "<p class='note'>Bold: best of its column; small: ratio to the first model. Attention MACs and memory are "
             "counted for one layer and sequence, MACs of a training step for the whole model, including masked pairs. "
             "Speed, peak memory and time are measured.{}</p>\n",
             alike.empty() ? "" : " The same for all: " + draw::escape(enumerated(alike)) + ".");
}

}  // namespace headroom::compare
