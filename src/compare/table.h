// The columns that the table on the terminal and the one on the page share.
#pragma once

#include <string>
#include <vector>

#include "headroom/compare/compare.h"

namespace headroom::compare {

using tasks::Better;

struct Column {
  std::string above, name;  // the heading's two lines
  Better better = Better::neither;
  bool words = false;  // text, which begins at the left, rather than figures
};

struct Cell {
  std::string text;
  double value;
};

// Of a result with runs: the first is what the others are compared with. A sweep's runs go by their values.
std::vector<Column> columns(const CompareResult& result);
std::vector<Cell> row_of(const ComparedRun& run, const CompareResult& result);

// What was tried before, a line a combination: "dense: learning_rate 0.0003: 7.91; learning_rate 0.001: 7.58 (taken)".
std::vector<std::string> tuning_lines(const std::vector<ComparedRun>& runs);

}  // namespace headroom::compare
