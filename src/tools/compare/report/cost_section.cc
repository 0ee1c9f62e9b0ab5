// What the runs cost: a table of small bars.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "curves.h"
#include "foundation/draw/charts.h"
#include "foundation/draw/svg.h"
#include "markup.h"
#include "sections.h"
#include "table.h"

namespace headroom::compare {
namespace {

// A column of the table, without what is not known of any run.
struct Costs {
  Column column;
  std::vector<Cell> cells;
  double most = 0.0;
  bool alike = true;  // for all runs
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

// The figure, how it relates to the first run's, and its share of the largest as a bar.
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
  return fmt::format("<div class='card scroll'><table><thead><tr>{}</tr></thead><tbody>\n{}</tbody></table></div>\n",
                     head, rows);
}

}  // namespace

std::string cost_section(const CompareResult& result) {
  if (result.runs.size() < 2) {  // a single run's are among its figures
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
             "<p class='note'>Bold: the best of its column; small: times the first one's. Attention MACs and memory "
             "are "
             "counted for one layer and sequence, MACs of a training step for the whole model, pairs that a mask hides "
             "included. Speed, peak memory and time are measured.{}</p>\n",
             alike.empty() ? "" : " The same for all: " + draw::escape(enumerated(alike)) + ".");
}

}  // namespace headroom::compare
