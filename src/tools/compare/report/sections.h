// Tables for the terminal and the page, and the sections of the page as HTML. A section without content is empty.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/compare/compare.h"

namespace headroom::compare {

using tasks::Better;

enum class Medium { both, terminal, page };
enum class About { name, quality, model, cost };  // the order of columns on the page; costs have their own table

struct Column {
  std::string above, name;  // the heading's two lines; `above` may be empty
  Better better = Better::neither;
  bool words = false;  // text, left-aligned; else numbers
  About about = About::name;
  Medium medium = Medium::both;
  std::optional<std::size_t> style = {};  // on the page, a sample of this run's line replaces `above`
};

struct Cell {
  std::string text;
  double value = 0.0;
  bool best = false;                      // best of its column; only set if the runs differ
  std::optional<std::size_t> style = {};  // on the page, a sample of this run's line precedes the text
  std::string markup = {};                // on the page, HTML after the text
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // one cell per column; the first is the row's name
};

// Returns aligned plain text.
std::string text_of(const Table& table);

// Returns the table on a card. `style` is added to the card's classes.
std::string html_of(const Table& table, const char* style = "");

// Returns a comparison's table, one row per run. The result must have at least one run; the first is the baseline. A
// sweep's runs are named by their values.
Table table_of(const CompareResult& result);

std::string result_section(const CompareResult& result);  // the table, differences with intervals, tuning
std::string scaling_section(const CompareResult& result);
std::string value_section(const CompareResult& result);     // sweep: the figure against each key and against the cost
std::string learning_section(const CompareResult& result);  // learning curves
std::string cost_section(const CompareResult& result);

// Charts with captions: paired differences from the first run (empty without intervals), and the headline figure
// against executed multiply-accumulates (empty if all runs have the same).
std::string difference_chart(const std::vector<ComparedRun>& runs);
std::string quality_against_cost(const std::vector<ComparedRun>& runs);

// A chart with its caption.
std::string figure(const std::string& caption, const std::string& remark, const std::string& chart);

// Returns an entry of a definition list; empty if `text` is empty. `text` is escaped.
std::string html_entry(const char* term, const std::string& text);

// Returns an entry with a command and a button that copies it.
std::string html_command(const char* term, const std::string& command);

// Returns a run's short name for charts: for a sweep, whose names are keys and values, the values alone.
std::string label_of(const ComparedRun& run);

// Returns "7.37", or "7.370 ± 0.052" with several seeds.
std::string headline_text(const ComparedRun& run);

// Reads a run folder. Throws UserError if it is none, or if nothing has been logged yet.
ComparedRun load_run(const std::filesystem::path& folder);

// Returns "higher" or "lower", whichever is better for this figure.
const char* better_direction(const tasks::FigureKind& kind);

}  // namespace headroom::compare
