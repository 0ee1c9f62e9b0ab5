// Tables as text and HTML, and the columns of a comparison's table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/attention_part.h"
#include "sections.h"
#include "tools/compare/figures/result.h"
#include "tools/compare/run/plan.h"
#include "tools/compare/statistics.h"

namespace headroom::compare {
namespace {

// Builds the table column by column.
class TableBuilder {
 public:
  explicit TableBuilder(const CompareResult& result) : result_(result), first_(result.runs.front()) {
    table_.rows.resize(result.runs.size());
  }

  Table build() {
    add_names();
    add_figures();
    add_tests();
    add_speedups();
    add_models();
    add_costs();
    for (std::size_t r = 0; r < table_.rows.size(); ++r) {
      table_.rows[r].front().style = r;
    }
    return std::move(table_);
  }

 private:
  // `cell` returns the cell of a run.
  template <class MakeCell>
  void add(const Column& column, const MakeCell& cell) {
    table_.columns.push_back(column);
    for (std::size_t r = 0; r < result_.runs.size(); ++r) {
      table_.rows[r].push_back(cell(result_.runs[r]));
    }
    mark_best();
  }

  // A cost of 0 means that it was not measured; it is shown as unknown.
  template <class Value>
  void add_cost(Column column, const Value& value, std::string (*text)(double)) {
    column.about = About::cost;
    add(column, [&](const ComparedRun& run) {
      const double cost = value(run);
      return cost > 0.0 ? Cell{.text = text(cost), .value = cost}
                        : Cell{.text = kUnknown, .value = std::numeric_limits<double>::quiet_NaN()};
    });
  }

  void add_names();
  void add_figures();
  void add_tests();
  void add_speedups();
  void add_models();
  void add_costs();
  void mark_best();  // in the last column

  const CompareResult& result_;
  const ComparedRun& first_;
  Table table_;
};

void TableBuilder::add_names() {
  const bool sweep = result_.kind == Kind::sweep;
  if (!sweep) {
    add({.above = "", .name = "model", .words = true, .about = About::name},
        [](const ComparedRun& run) { return Cell{.text = shorten(run.name, 24)}; });
  }
  const std::vector<std::string> keys = keys_of(result_.variations);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    add({.above = sweep ? "" : "tuned",
         .name = short_key(keys[k], keys),
         .words = sweep,
         .about = sweep ? About::name : About::figure},
        [k](const ComparedRun& run) {
          return Cell{.text = k < run.values.size() ? shorten(run.values[k].second, 24) : kUnknown};
        });
  }
}

void TableBuilder::add_models() {
  add({.above = "", .name = "heads", .words = true}, [](const ComparedRun& run) {
    std::vector<std::string> texts;  // of the layers that differ
    for (const auto& [layer, count] : run.config.model.kinds_of_layers(run.config.model.n_layers)) {
      const config::AttentionOptions& a = layer.attention;
      const std::string text = a.has_heads() ? a.projection->heads_text(a) : "0";
      if (std::ranges::find(texts, text) == texts.end()) {
        texts.push_back(text);
      }
    }
    return Cell{.text = fmt::format("{}", fmt::join(texts, ", "))};
  });
  add({.above = "", .name = "parameters"}, [](const ComparedRun& run) {
    const auto count = static_cast<double>(run.result().parameters);
    return Cell{.text = short_number(count), .value = count};
  });
  add({.above = "training", .name = "steps", .medium = Medium::terminal}, [](const ComparedRun& run) {
    const std::int64_t done = run.result().steps;
    const bool known = done > 0 || run.config.train.steps == 0;
    return Cell{.text = known ? fmt::format("{}", done) : kUnknown, .value = static_cast<double>(done)};
  });
}

void TableBuilder::add_costs() {
  const auto number = [](std::int64_t ComparedRun::*count) {
    return [count](const ComparedRun& run) { return static_cast<double>(run.*count); };
  };
  add_cost({.above = "attention", .name = "MACs", .better = Better::lower}, number(&ComparedRun::attention_macs),
           short_number);
  add_cost({.above = "attention", .name = "memory", .better = Better::lower}, number(&ComparedRun::attention_memory),
           short_number);
  add_cost({.above = "MACs of a", .name = "training step", .better = Better::lower, .medium = Medium::page},
           std::mem_fn(&ComparedRun::step_macs), short_number);
  add_cost({.above = "training", .name = "time", .better = Better::lower}, std::mem_fn(&ComparedRun::mean_seconds),
           format_duration);
  add_cost({.above = "tokens/", .name = "second", .better = Better::higher},
           std::mem_fn(&ComparedRun::tokens_per_second), short_number);
  add_cost({.above = "peak", .name = "memory", .better = Better::lower}, std::mem_fn(&ComparedRun::peak_memory_bytes),
           format_bytes);
  add_cost({.above = "core", .name = "share"}, std::mem_fn(&ComparedRun::core_share),
           [](double share) { return fmt::format("{:.0f}%", 100.0 * share); });
}

bool diverged(const ComparedRun& run) {
  return std::ranges::any_of(run.trained, [](const auto& seed) { return !seed.diverged.empty(); });
}

// Splits the name into two lines: "bits per", "byte".
Column heading_of(const tasks::FigureKind& kind) {
  const std::size_t blank = kind.words.rfind(' ');
  return blank == std::string::npos
             ? Column{.above = "validation", .name = kind.words, .better = kind.better}
             : Column{
                   .above = kind.words.substr(0, blank), .name = kind.words.substr(blank + 1), .better = kind.better};
}

Cell figure_cell(const ComparedRun& run, const tasks::FigureKind& kind, const std::vector<double>& values) {
  const double value = mean(values);
  const bool headline = kind.shown == tasks::Shown::headline;
  return {.text = !std::isfinite(value) ? (diverged(run) ? "diverged" : kUnknown)
                  : headline            ? with_deviation(values)
                                        : format_decimal(value, 3),
          .value = value};
}

void TableBuilder::add_figures() {
  const bool intervals = std::any_of(result_.runs.begin() + 1, result_.runs.end(), [&](const ComparedRun& run) {
    return headline_difference(run, first_).has_value();
  });
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(first_.task().figures())) {
    add(heading_of(kind), [&](const ComparedRun& run) { return figure_cell(run, kind, run.over_seeds(kind.name)); });
    if (kind.shown == tasks::Shown::headline && intervals) {
      add({.above = "paired", .name = "difference"}, [&](const ComparedRun& run) {
        const std::optional<Interval> difference = headline_difference(run, first_);
        return Cell{.text = &run == &first_ || !difference ? "" : interval_text(*difference)};
      });
    }
  }
}

void TableBuilder::add_tests() {
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(first_.task().figures())) {
    const auto tested = [&](const ComparedRun& run) { return std::isfinite(mean(run.tests_over_seeds(kind.name))); };
    if (std::ranges::any_of(result_.runs, tested)) {
      add({.above = "test", .name = kind.words, .better = kind.better},
          [&](const ComparedRun& run) { return figure_cell(run, kind, run.tests_over_seeds(kind.name)); });
    }
  }
}

void TableBuilder::add_speedups() {
  if (result_.speedups.of_runs.empty()) {
    return;
  }
  using Speedup = EffectiveSpeedups::Speedup;
  for (const auto& [above, name, ratio] :
       {std::tuple("tokens", "to its loss", &Speedup::tokens), std::tuple("effective", "speedup", &Speedup::time)}) {
    add({.above = above, .name = name}, [&, of = ratio](const ComparedRun& run) {
      const auto& speedup = result_.speedups.of_runs[static_cast<std::size_t>(&run - &first_)];
      return Cell{.text = speedup ? saving_text((*speedup).*of) : ""};
    });
  }
}

void TableBuilder::mark_best() {
  const Better better = table_.columns.back().better;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  std::vector<Cell*> cells;  // cells with a figure
  for (std::size_t r = 0; r < result_.runs.size(); ++r) {
    Cell& cell = table_.rows[r].back();
    if (result_.runs[r].has_figure() && std::isfinite(cell.value)) {
      low = std::min(low, cell.value);
      high = std::max(high, cell.value);
      cells.push_back(&cell);
    }
  }
  for (Cell* cell : cells) {
    cell->best = better != Better::neither && low < high && cell->value == (better == Better::lower ? low : high);
  }
}

Json json_of(const Cell& cell, std::size_t row) {
  Json json = {{"text", cell.text}};
  if (cell.style) {
    json["style"] = *cell.style;
  }
  if (cell.best) {
    json["best"] = true;
  }
  if (!cell.small.empty()) {
    json["small"] = cell.small;
  }
  if (cell.bar) {
    json["bar"] = {*cell.bar, row};
  }
  return json.size() == 1 ? json["text"] : json;
}

}  // namespace

std::string text_of(const Table& table) {
  constexpr std::size_t kWidth = 80, kBetween = 2;
  std::vector<std::size_t> names;
  std::vector<std::vector<std::size_t>> blocks;  // columns
  std::size_t width = 0, names_width = 0;
  const auto shown = [](const Cell& cell) { return cell.text + (cell.small.empty() ? "" : " " + cell.small); };
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    if (column.medium == Medium::page) {
      continue;
    }
    std::size_t own = std::max(display_width(column.above), display_width(column.name));
    for (const std::vector<Cell>& row : table.rows) {
      own = std::max(own, display_width(shown(row[c])));
    }
    if (column.about == About::name) {
      names.push_back(c);
      names_width += own + kBetween;
      continue;
    }
    const bool first_cost = column.about == About::cost && blocks.size() == 1;
    if (blocks.empty() || first_cost || width + own > kWidth) {
      blocks.push_back(names);
      width = names_width;
    }
    blocks.back().push_back(c);
    width += own + kBetween;
  }
  std::string text;
  for (const std::vector<std::size_t>& block : blocks) {
    std::vector<std::vector<std::string>> lines(2 + table.rows.size());
    std::vector<bool> left;
    for (const std::size_t c : block) {
      left.push_back(table.columns[c].words);
      lines[0].push_back(table.columns[c].above);
      lines[1].push_back(table.columns[c].name);
      for (std::size_t r = 0; r < table.rows.size(); ++r) {
        lines[2 + r].push_back(shown(table.rows[r][c]));
      }
    }
    const auto blank = [](const std::string& above) { return above.empty(); };
    lines.erase(lines.begin(), lines.begin() + (std::ranges::all_of(lines[0], blank) ? 1 : 0));
    text += (text.empty() ? "" : "\n") + text_table(lines, left);
  }
  return text;
}

Json block_of(const Table& table, const char* style) {
  Json columns = Json::array(), rows(table.rows.size(), Json::array());
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Column& column = table.columns[c];
    if (column.medium == Medium::terminal) {
      continue;
    }
    columns.push_back({{"name", column.name}, {"text", column.words}, {"cost", column.about == About::cost}});
    column.style ? columns.back()["style"] = *column.style : columns.back()["above"] = column.above;
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      rows[r].push_back(json_of(table.rows[r][c], r));
    }
  }
  return {{"table", {{"columns", std::move(columns)}, {"rows", std::move(rows)}}},
          {"card", fmt::format("card{}", style)}};
}

Table table_of(const CompareResult& result) {
  return TableBuilder(result).build();
}

std::string render_table(const CompareResult& result) {
  if (result.runs.empty()) {
    return "";
  }
  const Table tuning = tuning_table(result.runs);
  return text_of(table_of(result)) +
         (tuning.rows.empty() ? "" : fmt::format("\n{}\n{}", tuning_note(result.runs), text_of(tuning)));
}

}  // namespace headroom::compare
