// The comparison as aligned text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "headroom/compare/compare.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/log.h"
#include "headroom/core/utf8.h"
#include "markup.h"
#include "plan.h"
#include "statistics.h"
#include "table.h"
#include "words.h"

namespace headroom::compare {
namespace {

double against(double mine, double first) {
  return first > 0.0 ? mine / first : 0.0;
}

// Characters that a terminal shows, a column each.
std::size_t width(const std::string& text) {
  return count_characters(text);
}

std::string padded(const std::string& text, std::size_t room, bool left) {
  const std::string blanks(room - std::min(room, width(text)), ' ');
  return left ? text + blanks : blanks + text;
}

// Whether any model's difference from the first can be given an interval.
bool has_intervals(const std::vector<ComparedRun>& runs) {
  return std::any_of(runs.begin() + 1, runs.end(),
                     [&](const ComparedRun& run) { return headline_difference(run, runs.front()).has_value(); });
}

bool diverged(const ComparedRun& run) {
  return std::any_of(run.trained.begin(), run.trained.end(), [](const auto& seed) { return !seed.diverged.empty(); });
}

}  // namespace

std::vector<Column> columns(const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const bool sweep = result.kind == Kind::sweep;
  std::vector<Column> all;
  if (!sweep) {
    all.push_back({.above = "", .name = "model", .words = true});
  }
  const std::vector<std::string> keys = keys_of(result.variations);
  for (const std::string& key : keys) {
    all.push_back({.above = sweep ? "" : "tuned", .name = short_key(key, keys), .words = sweep});
  }
  all.push_back({.above = "", .name = "heads", .words = true});
  all.push_back({"", "parameters"});
  all.push_back({"attention", "MACs", Better::lower});
  all.push_back({"relative", "MACs"});
  all.push_back({"attention", "memory", Better::lower});
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(runs.front().task().figures())) {
    const std::size_t blank = kind.words.rfind(' ');
    all.push_back(blank == std::string::npos
                      ? Column{"validation", kind.words, kind.better}
                      : Column{kind.words.substr(0, blank), kind.words.substr(blank + 1), kind.better});
    if (kind.shown == tasks::Shown::headline && has_intervals(runs)) {
      all.push_back({"paired", "difference"});
    }
  }
  all.push_back({"tokens per", "second", Better::higher});
  all.push_back({"peak", "memory", Better::lower});
  all.push_back({"training", "time", Better::lower});
  return all;
}

std::vector<Cell> row_of(const ComparedRun& run, const CompareResult& result) {
  const std::vector<ComparedRun>& runs = result.runs;
  const ComparedRun& first = runs.front();
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double macs = number(run.attention_macs), memory = number(run.attention_memory);
  const double parameters = number(run.result().parameters), peak = run.peak_memory_bytes();
  const config::AttentionOptions& attention = run.config.model.attention;
  std::vector<Cell> cells;
  if (result.kind != Kind::sweep) {
    cells.push_back({shorten(run.name, 24), 0.0});
  }
  for (const auto& [key, value] : run.values) {
    cells.push_back({shorten(value, 24), 0.0});
  }
  cells.push_back({attention.projection->heads_text(attention), 0.0});
  cells.push_back({short_number(parameters), parameters});
  cells.push_back({short_number(macs), macs});
  cells.push_back({ratio_text(against(macs, number(first.attention_macs))), macs});
  cells.push_back({short_number(memory), memory});
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(run.task().figures())) {
    const std::vector<double> values = run.over_seeds(kind.name);
    const double value = mean(values);
    const bool headline = kind.shown == tasks::Shown::headline;
    cells.push_back({!std::isfinite(value) ? (diverged(run) ? "diverged" : kUnknown)
                     : headline            ? with_deviation(value, sample_deviation(values))
                                           : format_decimal(value, 3),
                     value});
    if (headline && has_intervals(runs)) {
      const std::optional<Interval> difference = headline_difference(run, first);
      cells.push_back({&run == &first || !difference ? "" : interval_text(*difference), 0.0});
    }
  }
  const double speed = run.mean_of(&train::TrainResult::tokens_per_second);
  const double seconds = run.mean_of(&train::TrainResult::seconds);
  const auto measured = [&](double value, const std::string& text) {
    const bool known = value > 0.0;  // else it was not measured
    cells.push_back({known ? text : kUnknown, known ? value : std::numeric_limits<double>::quiet_NaN()});
  };
  measured(speed, short_number(speed));
  measured(peak, format_bytes(peak));
  measured(seconds, format_duration(seconds));
  return cells;
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
  const std::vector<ComparedRun>& runs = result.runs;
  std::vector<std::vector<std::string>> lines(2);
  if (runs.empty()) {
    return "";
  }
  const std::vector<Column> all = columns(result);
  for (const Column& column : all) {
    lines[0].push_back(column.above);
    lines[1].push_back(column.name);
  }
  for (const ComparedRun& run : runs) {
    lines.emplace_back();
    for (const Cell& cell : row_of(run, result)) {
      lines.back().push_back(cell.text);
    }
  }
  std::string text;
  for (const auto& line : lines) {
    std::string row;
    for (std::size_t i = 0; i < line.size(); ++i) {
      std::size_t room = 0;
      for (const auto& other : lines) {
        room = std::max(room, width(other[i]));
      }
      row += (i == 0 ? "" : "  ") + padded(line[i], room, all[i].words);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  const std::vector<std::string> tuning = tuning_lines(runs);
  if (!tuning.empty()) {
    text += fmt::format("\nTuned with the first seed, by the validation {}:\n",
                        tasks::headline(runs.front().task().figures()).words);
  }
  for (const std::string& line : tuning) {
    text += line + "\n";
  }
  return text;
}

}  // namespace headroom::compare
