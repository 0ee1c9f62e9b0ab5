// Tables for the terminal and the page, and the sections of the page as arrays of blocks (foundation/draw/page.h). A
// section without content is empty.
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
enum class About { figure, name, cost };  // costs have a separate block, and on the page a table

struct Column {
  std::string above, name;  // the heading's two lines; `above` may be empty
  Better better = Better::neither;
  bool words = false;  // text, left-aligned; else numbers
  About about = About::figure;
  Medium medium = Medium::both;
  std::optional<std::size_t> style = {};  // on the page, a sample of this run's line replaces `above`
};

struct Cell {
  std::string text;
  double value = 0.0;
  bool best = false;                      // best of its column; only set if the runs differ
  std::optional<std::size_t> style = {};  // on the page, a sample of this run's line precedes the text
  std::string small = {};                 // a remark after the text
  std::optional<double> bar = {};         // on the page, a bar of that share in the row's style
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // one cell per column; the first is the row's name
};

// Returns aligned plain text of at most 80 columns, if the names leave room: in blocks that repeat the columns of
// names.
std::string text_of(const Table& table);

// Returns the table on a card. `style` is added to the card's classes.
Json block_of(const Table& table, const char* style = "");

// Returns a comparison's table, one row per run. The result must have at least one run; the first is the baseline. A
// sweep's rows are named by the runs' values.
Table table_of(const CompareResult& result);

// Returns one row per combination of tuned values and one column per model; no rows if nothing was tuned.
Table tuning_table(const std::vector<ComparedRun>& runs);
std::string tuning_note(const std::vector<ComparedRun>& runs);

Json result_section(const CompareResult& result);  // the table, differences with intervals, tuning
Json scaling_section(const CompareResult& result);
Json value_section(const CompareResult& result);     // sweep: the figure against each key and against the cost
Json learning_section(const CompareResult& result);  // learning curves
Json cost_section(const CompareResult& result);

// Returns figures: paired differences from the first run (none without intervals), and the headline figure against
// executed multiply-accumulates (none if all runs have the same).
Json difference_chart(const std::vector<ComparedRun>& runs);
Json quality_against_cost(const std::vector<ComparedRun>& runs);

// Returns a chart with its caption.
Json figure(const std::string& caption, const std::string& remark, Json chart);

// Appends the blocks `more` to `blocks`.
void append(Json& blocks, Json more);

// Returns a run's short name for charts: for a sweep, whose names are keys and values, the values alone.
std::string label_of(const ComparedRun& run);

// Reads a run folder. Throws UserError if it is not a run folder, or if nothing has been logged yet.
ComparedRun load_run(const std::filesystem::path& folder);

// Returns "bounds" of a chart of the figure, if the figure has bounds and so a linear axis; otherwise null.
// scale_of() returns "; logarithmic" for a figure without bounds, otherwise "".
Json bounds_of(const tasks::FigureKind& kind);
const char* scale_of(const tasks::FigureKind& kind);

// Returns "higher" or "lower", whichever is better for this figure.
const char* better_direction(const tasks::FigureKind& kind);

}  // namespace headroom::compare
