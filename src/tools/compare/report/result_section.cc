// The tables of results, tuning and costs.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "foundation/core/transformed.h"
#include "sections.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

// Returns the table without the columns of costs, which are in a separate table.
Json result_table(const CompareResult& result) {
  Table table = table_of(result);
  for (Column& column : table.columns) {
    column.medium = column.about == About::cost ? Medium::terminal : column.medium;
  }
  return block_of(table);
}

// Lists the figures of a single run, for which there is nothing to compare.
Json facts(const CompareResult& result) {
  const Table table = table_of(result);
  Json entries = Json::array();
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    if (column.name != "model" && column.medium != Medium::terminal) {
      entries.push_back({fmt::format("{} {}", column.above, column.name), table.rows[0][c].text});
    }
  }
  return {{"facts", std::move(entries)}};
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
      "{}{} {} measured on the validation data.{}{}{}", single ? "" : "\u2605 best of its column. ",
      capitalised(enumerated(shown)), shown.size() == 1 ? "is" : "are",
      runs.front().trained.size() < 2
          ? ""
          : " Figures are means over the seeds \u00b1 their standard deviation. Paired differences from the first "
            "model are taken seed by seed; brackets are their 95% intervals by Student's t.",
      result.speedups.of_runs.empty()
          ? ""
          : " Last columns of figures: what the first model needs for the same loss, divided by what the model needs; "
            "effective speedup: in training time.",
      single ? " Attention MACs and memory are counted for one layer and sequence, MACs of a training step for the "
               "whole model; time, speed and peak memory are measured."
             : "");
}

}  // namespace

Table tuning_table(const std::vector<ComparedRun>& runs) {
  Table table{.columns = {{.name = "tried", .words = true, .about = About::name}}};
  std::vector<Values> combinations;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    table.columns.push_back({.name = shorten(runs[r].name, 24), .style = r});
    for (const TuningResult& tried : runs[r].tuning) {
      auto known = std::ranges::find(combinations, tried.values);
      if (known == combinations.end()) {
        known = combinations.insert(known, tried.values);
        table.rows.emplace_back(runs.size() + 1, Cell{.text = kUnknown}).front().text = describe(tried.values);
      }
      table.rows[static_cast<std::size_t>(known - combinations.begin())][r + 1].text =
          (std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged") + (tried.chosen ? " \u2605" : "");
    }
  }
  return table;
}

std::string tuning_note(const std::vector<ComparedRun>& runs) {
  return fmt::format("Validation {} with seed {}; all compared runs of a model use its best values, \u2605.",
                     runs.front().headline_kind().words, runs.front().tuning_seed);
}

Json result_section(const CompareResult& result) {
  Json blocks = {{{"heading", "Result"}},
                 result.runs.size() == 1 ? facts(result) : result_table(result),
                 {{"note", table_note(result)}}};
  if (result.kind != Kind::sweep) {  // a sweep has its own charts of its keys
    Json figures = difference_chart(result.runs);
    append(figures, quality_against_cost(result.runs));
    if (!figures.empty()) {
      blocks.push_back({{"grid", std::move(figures)}, {"kind", "overview"}});
    }
  }
  if (const Table tuning = tuning_table(result.runs); !tuning.rows.empty()) {
    append(blocks, {{{"heading", "Tuning"}}, block_of(tuning, " narrow"), {{"note", tuning_note(result.runs)}}});
  }
  return blocks;
}

Json cost_section(const CompareResult& result) {
  if (result.runs.size() < 2) {  // a single run's costs are listed with its figures
    return Json::array();
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
      Cell& cell = costs.rows[r].emplace_back(all.rows[r][c]);
      const double ratio = cell.value / first.value;
      cell.small = r == 0 || !std::isfinite(ratio) ? "" : ratio_text(ratio);
      cell.bar = cell.value / most;
    }
  }
  Json blocks = {{{"heading", "Costs"}}};
  if (costs.columns.size() > 1) {
    blocks.push_back(block_of(costs));
  }
  blocks.push_back(
      {{"note",
        fmt::format(
            "Bold: best of its column; small: ratio to the first model. Attention MACs and memory are counted for one "
            "layer and sequence, MACs of a training step for the whole model, including masked pairs. Time, speed "
            "and peak memory are measured; core share: CPU time as a share of what the run's threads could use.{}",
            alike.empty() ? "" : " The same for all: " + enumerated(alike) + ".")}});
  return blocks;
}

}  // namespace headroom::compare
