// The comparison as aligned text.
#include <fmt/format.h>

#include <algorithm>

#include "headroom/analysis/compare.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/log.h"
#include "markup.h"
#include "table.h"

namespace headroom::analysis {
namespace {

double against(double mine, double first) {
  return first > 0.0 ? mine / first : 0.0;
}

// Characters that a terminal shows, a column each.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t room, bool left) {
  const std::string blanks(room - std::min(room, width(text)), ' ');
  return left ? text + blanks : blanks + text;
}

}  // namespace

std::vector<Column> columns(const tasks::Task& task) {
  std::vector<Column> all = {
      {"", "model", Better::neither},        {"", "heads", Better::neither},
      {"", "parameters", Better::neither},   {"attention", "MACs", Better::lower},
      {"relative", "MACs", Better::neither}, {"attention", "memory", Better::lower},
  };
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(task.figures())) {
    const std::size_t blank = kind.words.rfind(' ');
    all.push_back(blank == std::string::npos
                      ? Column{"validation", kind.words, kind.better}
                      : Column{kind.words.substr(0, blank), kind.words.substr(blank + 1), kind.better});
  }
  all.push_back({"tokens per", "second", Better::higher});
  all.push_back({"peak", "memory", Better::lower});
  all.push_back({"training", "time", Better::lower});
  return all;
}

std::vector<Cell> row_of(const ComparedRun& run, const ComparedRun& first) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double macs = number(run.attention_macs), memory = number(run.attention_memory);
  const double peak = number(run.result.peak_memory_bytes);
  const train::TrainResult& r = run.result;
  const config::AttentionOptions& attention = run.config.model.attention;
  std::vector<Cell> cells = {
      {shorten(run.name, 24), 0.0},
      {attention.projection->heads_text(attention), 0.0},
      {short_number(number(r.parameters)), number(r.parameters)},
      {short_number(macs), macs},
      {ratio_text(against(macs, number(first.attention_macs))), macs},
      {short_number(memory), memory},
  };
  const tasks::Figures figures = r.figures();
  for (const tasks::FigureKind& kind : tasks::shown_in_tables(run.task().figures())) {
    const double value = tasks::figure(figures, kind.name);
    cells.push_back({kind.shown == tasks::Shown::headline ? plain_number(value) : fmt::format("{:.3f}", value), value});
  }
  cells.push_back({short_number(r.tokens_per_second), r.tokens_per_second});
  cells.push_back({format_bytes(peak), peak});
  cells.push_back({format_duration(r.seconds), r.seconds});
  return cells;
}

std::string render_table(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<std::string>> lines(2);
  if (runs.empty()) {
    return "";
  }
  for (const Column& column : columns(runs.front().task())) {
    lines[0].push_back(column.above);
    lines[1].push_back(column.name);
  }
  for (const ComparedRun& run : runs) {
    lines.emplace_back();
    for (const Cell& cell : row_of(run, runs.front())) {
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
      row += (i == 0 ? "" : "  ") + padded(line[i], room, i < 2);
    }
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace headroom::analysis
