// The columns that the table on the terminal and the one on the page share.
#pragma once

#include <string>
#include <vector>

#include "headroom/analysis/compare.h"

namespace headroom::analysis {

using tasks::Better;

struct Column {
  std::string above, name;  // the heading's two lines
  Better better;
};

struct Cell {
  std::string text;
  double value;
};

std::vector<Column> columns(const tasks::Task& task);
std::vector<Cell> row_of(const ComparedRun& run, const ComparedRun& first);

}  // namespace headroom::analysis
