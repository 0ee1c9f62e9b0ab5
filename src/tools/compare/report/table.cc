// What is shown of each run, and the comparison as aligned text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/attention_part.h"
#include "markup.h"
#include "table.h"
#include "tools/compare/compare.h"
#include "tools/compare/figures/statistics.h"
#include "tools/compare/figures/words.h"
#include "tools/compare/run/plan.h"

namespace headroom::compare {
namespace {

// Characters that a terminal shows, a column each.
std::size_t width(const std::string& text) {
  return count_characters(text);
}

std::string padded(const std::string& text, std::size_t room, bool left) {
  const std::string blanks(room - std::min(room, width(text)), ' ');
  return left ? text + blanks : blanks + text;
}

bool diverged(const ComparedRun& run) {
  return std::any_of(run.trained.begin(), run.trained.end(), [](const auto& seed) { return !seed.diverged.empty(); });
}

// A column with what it shows of a run.
struct Part {
  Column column;
  std::function<Cell(const ComparedRun&)> cell;
};
using Parts = std::vector<Part>;

void add_names(const CompareResult& result, Parts& parts) {
  const bool sweep = result.kind == Kind::sweep;
  if (!sweep) {
    parts.push_back({{.above = "", .name = "model", .words = true},
                     [](const ComparedRun& run) { return Cell{.text = shorten(run.name, 24)}; }});
  }
  const std::vector<std::string> keys = keys_of(result.variations);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    parts.push_back({{.above = sweep ? "" : "tuned", .name = short_key(keys[k], keys), .words = sweep},
                     [k](const ComparedRun& run) {
                       return Cell{.text = k < run.values.size() ? shorten(run.values[k].second, 24) : kUnknown};
                     }});
  }
  parts.push_back({{.above = "", .name = "heads", .words = true}, [](const ComparedRun& run) {
                     const config::AttentionOptions& attention = run.config.model.attention;
                     return Cell{.text = attention.projection->heads_text(attention)};
                   }});
  parts.push_back({{.above = "", .name = "parameters"}, [](const ComparedRun& run) {
                     const auto count = static_cast<double>(run.result().parameters);
                     return Cell{.text = short_number(count), .value = count};
                   }});
}

// A cost that every run has. What was not measured is not known.
void add_cost(const Column& column, double (*value)(const ComparedRun&), std::string (*text)(double), Parts& parts) {
  parts.push_back({column, [value, text](const ComparedRun& run) {
                     const double cost = value(run);
                     return cost > 0.0 ? Cell{.text = text(cost), .value = cost}
                                       : Cell{.text = kUnknown, .value = std::numeric_limits<double>::quiet_NaN()};
                   }});
}

double attention_macs(const ComparedRun& run) {
  return static_cast<double>(run.attention_macs);
}

void add_counted(const CompareResult& result, Parts& parts) {
  const auto cost = [](const char* above, const char* name, Better better, Medium medium) {
    return Column{.above = above, .name = name, .better = better, .cost = true, .medium = medium};
  };
  add_cost(cost("attention", "MACs", Better::lower, Medium::both), attention_macs, short_number, parts);
  parts.push_back({cost("relative", "MACs", Better::neither, Medium::terminal),
                   [first = attention_macs(result.runs.front())](const ComparedRun& run) {
                     return Cell{.text = ratio_text(first > 0.0 ? attention_macs(run) / first : 0.0)};
                   }});
  add_cost(
      cost("attention", "memory", Better::lower, Medium::both),
      [](const ComparedRun& run) { return static_cast<double>(run.attention_memory); }, short_number, parts);
  add_cost(
      cost("MACs of a", "training step", Better::lower, Medium::page),
      [](const ComparedRun& run) { return run.executed.value("step_macs", 0.0); }, short_number, parts);
}

void add_measured(Parts& parts) {
  const auto cost = [](const char* above, const char* name, Better better) {
    return Column{.above = above, .name = name, .better = better, .cost = true};
  };
  add_cost(
      cost("tokens per", "second", Better::higher),
      [](const ComparedRun& run) { return run.mean_of(&train::TrainResult::tokens_per_second); }, short_number, parts);
  add_cost(
      cost("peak", "memory", Better::lower), [](const ComparedRun& run) { return run.peak_memory_bytes(); },
      format_bytes, parts);
  add_cost(
      cost("training", "time", Better::lower),
      [](const ComparedRun& run) { return run.mean_of(&train::TrainResult::seconds); }, format_duration, parts);
}

// "bits per", "byte".
Column heading_of(const tasks::FigureKind& kind) {
  const std::size_t blank = kind.words.rfind(' ');
  return blank == std::string::npos
             ? Column{.above = "validation", .name = kind.words, .better = kind.better}
             : Column{
                   .above = kind.words.substr(0, blank), .name = kind.words.substr(blank + 1), .better = kind.better};
}

Cell figure_cell(const ComparedRun& run, const tasks::FigureKind& kind) {
  const std::vector<double> values = run.over_seeds(kind.name);
  const double value = mean(values);
  const bool headline = kind.shown == tasks::Shown::headline;
  return {.text = !std::isfinite(value) ? (diverged(run) ? "diverged" : kUnknown)
                  : headline            ? with_deviation(value, sample_deviation(values))
                                        : format_decimal(value, 3),
          .value = value};
}

// Whether any model's difference from the first can be given an interval.
bool has_intervals(const std::vector<ComparedRun>& runs) {
  return std::any_of(runs.begin() + 1, runs.end(),
                     [&](const ComparedRun& run) { return headline_difference(run, runs.front()).has_value(); });
}

void add_figures(const CompareResult& result, Parts& parts) {
  const ComparedRun& first = result.runs.front();
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(first.task().figures())) {
    parts.push_back({heading_of(kind), [kind](const ComparedRun& run) { return figure_cell(run, kind); }});
    if (kind.shown == tasks::Shown::headline && has_intervals(result.runs)) {
      parts.push_back({{.above = "paired", .name = "difference"}, [&first](const ComparedRun& run) {
                         const std::optional<Interval> difference = headline_difference(run, first);
                         return Cell{.text = &run == &first || !difference ? "" : interval_text(*difference)};
                       }});
    }
  }
}

void mark_best(const std::vector<ComparedRun>& runs, std::size_t column, Table& table) {
  const Better better = table.columns[column].better;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const auto counts = [&](std::size_t r) { return runs[r].has_figure() && std::isfinite(table.rows[r][column].value); };
  for (std::size_t r = 0; r < runs.size(); ++r) {
    if (counts(r)) {
      low = std::min(low, table.rows[r][column].value);
      high = std::max(high, table.rows[r][column].value);
    }
  }
  for (std::size_t r = 0; r < runs.size() && better != Better::neither && low < high; ++r) {
    Cell& cell = table.rows[r][column];
    cell.best = counts(r) && cell.value == (better == Better::lower ? low : high);
  }
}

}  // namespace

Table table_of(const CompareResult& result) {
  Parts parts;
  add_names(result, parts);
  add_counted(result, parts);
  add_figures(result, parts);
  add_measured(parts);
  Table table;
  for (const Part& part : parts) {
    table.columns.push_back(part.column);
  }
  for (const ComparedRun& run : result.runs) {
    std::vector<Cell>& row = table.rows.emplace_back();
    for (const Part& part : parts) {
      row.push_back(part.cell(run));
    }
  }
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    mark_best(result.runs, column, table);
  }
  return table;
}

std::vector<std::string> tuning_lines(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> lines;
  for (const ComparedRun& run : runs) {
    std::string line;
    for (const Tried& tried : run.tried) {
      line += fmt::format("{}{}: {}{}", line.empty() ? "" : "; ", describe(tried.values),
                          std::isfinite(tried.headline) ? plain_number(tried.headline) : "diverged",
                          tried.chosen ? " (taken)" : "");
    }
    if (!line.empty()) {
      lines.push_back(run.name + ": " + line);
    }
  }
  return lines;
}

std::string render_table(const CompareResult& result) {
  if (result.runs.empty()) {
    return "";
  }
  const Table table = table_of(result);
  std::string text;
  std::vector<std::string> lines(2 + table.rows.size());
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    if (column.medium == Medium::page) {
      continue;
    }
    std::vector<std::string> texts = {column.above, column.name};
    for (const std::vector<Cell>& row : table.rows) {
      texts.push_back(row[i].text);
    }
    std::size_t room = 0;
    for (const std::string& one : texts) {
      room = std::max(room, width(one));
    }
    for (std::size_t n = 0; n < lines.size(); ++n) {
      lines[n] += (i == 0 ? "" : "  ") + padded(texts[n], room, column.words);
    }
  }
  for (const std::string& line : lines) {
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const std::vector<std::string> tuning = tuning_lines(result.runs);
  if (!tuning.empty()) {
    text += fmt::format("\nTuned with the first seed, by the validation {}:\n",
                        tasks::headline(result.runs.front().task().figures()).words);
  }
  for (const std::string& line : tuning) {
    text += line + "\n";
  }
  return text;
}

}  // namespace headroom::compare
