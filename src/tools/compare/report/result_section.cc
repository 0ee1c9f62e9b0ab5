// The tables of results, tuning and costs.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "formatting.h"
#include "foundation/core/transformed.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "sections.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/run/plan.h"

namespace headroom::compare {
namespace {

// Returns the columns that the page shows, in its order: on a narrow screen, the quality stands first.
Table in_page_order(const Table& table) {
  Table ordered{.columns = {}, .rows = std::vector<std::vector<Cell>>(table.rows.size())};
  for (const About about : {About::name, About::quality, About::model, About::cost}) {
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].about == about && table.columns[c].medium != Medium::terminal) {
        ordered.columns.push_back(table.columns[c]);
        for (std::size_t r = 0; r < table.rows.size(); ++r) {
          ordered.rows[r].push_back(table.rows[r][c]);
        }
      }
    }
  }
  return ordered;
}

// Returns the table without the columns of costs, which have a table of their own.
std::string result_table(const CompareResult& result) {
  Table table = in_page_order(table_of(result));
  for (Column& column : table.columns) {
    column.medium = column.about == About::cost ? Medium::terminal : column.medium;
  }
  return html_of(table);
}

// Lists the figures of a single run, for which there is nothing to compare.
std::string facts(const CompareResult& result) {
  const Table table = in_page_order(table_of(result));
  std::string html;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    if (column.name != "model") {
      html += fmt::format("<div><dt>{} {}</dt><dd>{}</dd></div>", column.above, draw::escape(column.name),
                          draw::escape(table.rows[0][c].text));
    }
  }
  return "<dl class='card facts'>" + html + "</dl>\n";
}

std::string capitalised(std::string words) {
  words[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(words[0])));
  return words;
}

std::string table_note(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  std::vector<std::string> shown =
      transformed(tasks::shown_in_tables(runs.front().task().figures()), &tasks::FigureKind::words);
  const bool single = runs.size() == 1;
  return fmt::format(
      "<p class='note'>{}{} {} measured on the validation data.{}{}{}</p>", single ? "" : "\u2605 best of its column. ",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are",
      runs.front().trained.size() < 2
          ? ""
          : " Figures are means over the seeds \u00b1 their standard deviation. Paired differences from the first "
            "model are taken seed by seed; brackets are their 95% intervals by Student's t.",
      result.speedups.basis == EffectiveSpeedups::Basis::none
          ? ""
          : " Effective speedup: training time of the first model for the same loss, divided by the model's.",
      single ? " Attention MACs and memory are counted for one layer and sequence, MACs of a training step for the "
               "whole model; speed, peak memory and time are measured."
             : "");
}

// Returns the figure of the run with these values.
Cell tried_cell(const ComparedRun& run, const Values& values) {
  for (const TuningResult& tried : run.tuning) {
    if (tried.values == values) {
      return {.text = std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged", .best = tried.chosen};
    }
  }
  return {.text = kUnknown};
}

// Builds a table with one row per tried combination and one column per model.
std::string tuning(const std::vector<ComparedRun>& runs) {
  Table table{.columns = {{.name = "tried"}}};
  std::vector<Values> combinations;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    table.columns.push_back({.name = shorten(runs[r].name, 24), .style = r});
    for (const TuningResult& tried : runs[r].tuning) {
      if (std::ranges::find(combinations, tried.values) == combinations.end()) {
        combinations.push_back(tried.values);
      }
    }
  }
  for (const Values& values : combinations) {
    std::vector<Cell>& row = table.rows.emplace_back(1, Cell{.text = describe(values)});
    for (const ComparedRun& run : runs) {
      row.push_back(tried_cell(run, values));
    }
  }
  return table.rows.empty()
             ? ""
             : "<h2>Tuning</h2>" + html_of(table, " narrow") +
                   fmt::format(
                       "<p class='note'>Validation {} with seed {}; all compared runs of a model use its "
                       "best values, \u2605.</p>\n",
                       draw::escape(runs.front().headline_kind().words), runs.front().tuning_seed);
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
  return "<h2>Result</h2>" + (result.runs.size() == 1 ? facts(result) : result_table(result)) + table_note(result) +
         overview(result) + tuning(result.runs);
}

namespace {

// Adds its ratio to the first run's cost, and a bar relative to the largest cost.
Cell cost_cell(Cell cell, double first, double most, std::size_t style) {
  const double ratio = cell.value / first;
  cell.markup = (style == 0 || !std::isfinite(ratio) ? "" : fmt::format(" <small>{}</small>", ratio_text(ratio))) +
                draw::small_bar(cell.value / most, style);
  return cell;
}

}  // namespace

std::string cost_section(const CompareResult& result) {
  if (result.runs.size() < 2) {  // a single run's costs are listed with its figures
    return "";
  }
  const Table all = table_of(result);
  Table costs{.columns = {{}}, .rows = {}};
  for (std::size_t r = 0; r < result.runs.size(); ++r) {
    costs.rows.push_back({{.text = shorten(label_of(result.runs[r]), 24), .style = r}});
  }
  std::vector<std::string> alike;
  for (std::size_t c = 0; c < all.columns.size(); ++c) {
    const Column& column = all.columns[c];
    const Cell& first = all.rows.front()[c];
    double most = 0.0;
    bool same = true;
    for (const std::vector<Cell>& row : all.rows) {
      most = std::isfinite(row[c].value) ? std::max(most, row[c].value) : most;
      same = same && row[c].value == first.value;
    }
    if (column.about != About::cost || column.medium == Medium::terminal || !(most > 0.0)) {
      continue;
    }
    if (same) {
      alike.push_back(fmt::format("{} {} ({})", column.above, column.name, first.text));
      continue;
    }
    costs.columns.push_back(column);
    for (std::size_t r = 0; r < all.rows.size(); ++r) {
      costs.rows[r].push_back(cost_cell(all.rows[r][c], first.value, most, r));
    }
  }
  return "<h2>Costs</h2>" + (costs.columns.size() < 2 ? "" : html_of(costs)) +
         fmt::format(
             "<p class='note'>Bold: best of its column; small: ratio to the first model. Attention MACs and memory are "
             "counted for one layer and sequence, MACs of a training step for the whole model, including masked pairs. "
             "Speed, peak memory and time are measured.{}</p>\n",
             alike.empty() ? "" : " The same for all: " + draw::escape(enumerated(alike)) + ".");
}

}  // namespace headroom::compare
