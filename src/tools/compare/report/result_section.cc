// The table, the notes under it, and what was tuned.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "markup.h"
#include "sections.h"
#include "table.h"
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
  return fmt::format("<div class='card scroll'><table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
                     head, rows);
}

// A run by itself has nothing to be set against: its figures, each under its name.
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
      "<p class='note'>{}{} {} of the validation data.{}{}</p>", single ? "" : "\u2605 the best of its column. ",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are",
      runs.front().trained.size() < 2
          ? ""
          : " Figures are means over the seeds, after \u00b1 their standard deviation. The paired difference from the "
            "first model is taken seed by seed, in brackets its 95% interval by Student's t.",
      single ? " Attention MACs and memory are counted for one layer and sequence, MACs of a training step for the "
               "whole model; speed, peak memory and time are measured."
             : "");
}

// What run `r` reached with these values.
std::string tried_cell(const ComparedRun& run, const Values& values) {
  for (const Tried& tried : run.tried) {
    if (tried.values == values) {
      return fmt::format("<td{}>{}</td>", tried.chosen ? " class='best'" : "",
                         std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged");
    }
  }
  return fmt::format("<td>{}</td>", kUnknown);
}

// A line for each combination that was tried, a column for each model.
std::string tuning(const std::vector<ComparedRun>& runs) {
  std::vector<Values> combinations;
  std::string head = "<th scope='col'>tried</th>", rows;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    head += fmt::format("<th scope='col'>{}<br>{}</th>", draw::line_sample(r), draw::escape(shorten(runs[r].name, 24)));
    for (const Tried& tried : runs[r].tried) {
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
                      : fmt::format(
                            "<h2>Tuning</h2><div class='card scroll narrow'><table><thead><tr>{}</tr></thead><tbody>\n"
                            "{}</tbody></table></div><p class='note'>Validation {} with the first seed; all seeds of a "
                            "model have the values with its best, \u2605.</p>\n",
                            head, rows, draw::escape(tasks::headline(runs.front().task().figures()).words));
}

// How far apart the runs ended, and at what cost.
std::string overview(const CompareResult& result) {
  if (result.kind == Kind::sweep) {  // whose keys come first
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
  const std::vector<double> values = run.over_seeds(tasks::headline(run.task().figures()).name);
  return with_deviation(mean(values), sample_deviation(values));
}

std::string result_section(const CompareResult& result) {
  return "<h2>Result</h2>" + (result.runs.size() == 1 ? facts(result) : table(result)) + table_note(result.runs) +
         overview(result) + tuning(result.runs);
}

}  // namespace headroom::compare
