// What the table on the terminal and the page show of each run.
#pragma once

#include <string>
#include <vector>

#include "tools/compare/compare.h"

namespace headroom::compare {

using tasks::Better;

enum class Medium { both, terminal, page };

struct Column {
  std::string above, name;  // the heading's two lines
  Better better = Better::neither;
  bool words = false;  // text, which begins at the left, rather than figures
  bool cost = false;   // what a figure was paid with: the page has a table of its own for these
  Medium medium = Medium::both;
};

struct Cell {
  std::string text;
  double value = 0.0;
  bool best = false;  // of its column, where the runs differ; what did not come to a figure is best in nothing
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // a row a run, a cell a column
};

// Of a result with runs: the first is what the others are compared with. A sweep's runs go by their values.
Table table_of(const CompareResult& result);

// What was tried before, a line a combination: "dense: learning_rate 0.0003: 7.91; learning_rate 0.001: 7.58 (taken)".
std::vector<std::string> tuning_lines(const std::vector<ComparedRun>& runs);

}  // namespace headroom::compare
