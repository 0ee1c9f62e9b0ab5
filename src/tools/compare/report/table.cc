// The columns of the table, and the table as text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "formatting.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/attention_part.h"
#include "sections.h"
#include "tools/compare/figures/conclusions.h"
#include "tools/compare/run/plan.h"

namespace headroom::compare {
namespace {

// In terminal columns.
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

struct ColumnSource {
  Column column;
  std::function<Cell(const ComparedRun&)> cell;
};
using ColumnSources = std::vector<ColumnSource>;

void add_names(const CompareResult& result, ColumnSources& sources) {
  const bool sweep = result.kind == Kind::sweep;
  if (!sweep) {
    sources.push_back({{.above = "", .name = "model", .words = true},
                       [](const ComparedRun& run) { return Cell{.text = shorten(run.name, 24)}; }});
  }
  const std::vector<std::string> keys = keys_of(result.variations);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    sources.push_back({{.above = sweep ? "" : "tuned", .name = short_key(keys[k], keys), .words = sweep},
                       [k](const ComparedRun& run) {
                         return Cell{.text = k < run.values.size() ? shorten(run.values[k].second, 24) : kUnknown};
                       }});
  }
  sources.push_back({{.above = "", .name = "heads", .words = true}, [](const ComparedRun& run) {
                       const config::AttentionOptions& attention = run.config.model.attention;
                       return Cell{.text = attention.projection->heads_text(attention)};
                     }});
  sources.push_back({{.above = "", .name = "parameters"}, [](const ComparedRun& run) {
                       const auto count = static_cast<double>(run.result().parameters);
                       return Cell{.text = short_number(count), .value = count};
                     }});
}

// A cost of 0 was not measured and is shown as unknown.
void add_cost(const Column& column, double (*value)(const ComparedRun&), std::string (*text)(double),
              ColumnSources& sources) {
  sources.push_back({column, [value, text](const ComparedRun& run) {
                       const double cost = value(run);
                       return cost > 0.0 ? Cell{.text = text(cost), .value = cost}
                                         : Cell{.text = kUnknown, .value = std::numeric_limits<double>::quiet_NaN()};
                     }});
}

double attention_macs(const ComparedRun& run) {
  return static_cast<double>(run.attention_macs);
}

void add_counted(const CompareResult& result, ColumnSources& sources) {
  const auto cost = [](const char* above, const char* name, Better better, Medium medium) {
    return Column{.above = above, .name = name, .better = better, .cost = true, .medium = medium};
  };
  add_cost(cost("attention", "MACs", Better::lower, Medium::both), attention_macs, short_number, sources);
  sources.push_back({cost("relative", "MACs", Better::neither, Medium::terminal),
                     [first = attention_macs(result.runs.front())](const ComparedRun& run) {
                       return Cell{.text = ratio_text(first > 0.0 ? attention_macs(run) / first : 0.0)};
                     }});
  add_cost(
      cost("attention", "memory", Better::lower, Medium::both),
      [](const ComparedRun& run) { return static_cast<double>(run.attention_memory); }, short_number, sources);
  add_cost(
      cost("MACs of a", "training step", Better::lower, Medium::page),
      [](const ComparedRun& run) { return run.executed.value("step_macs", 0.0); }, short_number, sources);
}

void add_measured(ColumnSources& sources) {
  const auto cost = [](const char* above, const char* name, Better better) {
    return Column{.above = above, .name = name, .better = better, .cost = true};
  };
  add_cost(
      cost("tokens per", "second", Better::higher),
      [](const ComparedRun& run) { return run.mean_of(&train::TrainResult::tokens_per_second); }, short_number,
      sources);
  add_cost(
      cost("peak", "memory", Better::lower), [](const ComparedRun& run) { return run.peak_memory_bytes(); },
      format_bytes, sources);
  add_cost(
      cost("training", "time", Better::lower),
      [](const ComparedRun& run) { return run.mean_of(&train::TrainResult::seconds); }, format_duration, sources);
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
                  : headline            ? with_deviation(values)
                                        : format_decimal(value, 3),
          .value = value};
}

// Whether any model has an interval for its difference from the first.
bool has_intervals(const std::vector<ComparedRun>& runs) {
  return std::any_of(runs.begin() + 1, runs.end(),
                     [&](const ComparedRun& run) { return headline_difference(run, runs.front()).has_value(); });
}

void add_figures(const CompareResult& result, ColumnSources& sources) {
  const ComparedRun& first = result.runs.front();
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(first.task().figures())) {
    sources.push_back({heading_of(kind), [kind](const ComparedRun& run) { return figure_cell(run, kind); }});
    if (kind.shown == tasks::Shown::headline && has_intervals(result.runs)) {
      sources.push_back({{.above = "paired", .name = "difference"}, [&first](const ComparedRun& run) {
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
  ColumnSources sources;
  add_names(result, sources);
  add_counted(result, sources);
  add_figures(result, sources);
  add_measured(sources);
  Table table;
  for (const ColumnSource& source : sources) {
    table.columns.push_back(source.column);
  }
  for (const ComparedRun& run : result.runs) {
    std::vector<Cell>& row = table.rows.emplace_back();
    for (const ColumnSource& source : sources) {
      row.push_back(source.cell(run));
    }
  }
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    mark_best(result.runs, column, table);
  }
  return table;
}

namespace {

// One line per tuned model: "dense: learning_rate 0.0003: 7.91; learning_rate 0.001: 7.58 (taken)".
std::vector<std::string> tuning_lines(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> lines;
  for (const ComparedRun& run : runs) {
    std::string line;
    for (const TuningResult& tried : run.tuning) {
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

}  // namespace

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
    text += fmt::format("\nTuned with the first seed for the best validation {}:\n",
                        result.runs.front().headline_kind().words);
  }
  for (const std::string& line : tuning) {
    text += line + "\n";
  }
  return text;
}

}  // namespace headroom::compare
