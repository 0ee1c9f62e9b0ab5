// A stage as a table, for text and for the page.
#pragma once

#include <string>
#include <vector>

#include "advise.h"

namespace headroom::compare {

// A row an arm: its name, parameters and tokens a second where arms differ in them, and what each round found; empty
// where it was not in one.
struct AdviceColumn {
  std::string name, note;  // "round 1", "12 steps"
};
struct AdviceRow {
  std::vector<std::string> cells;
  bool taken = false;
};
struct AdviceTable {
  std::vector<AdviceColumn> head;
  std::vector<AdviceRow> rows;
};
AdviceTable table_of(const Stage& stage);

}  // namespace headroom::compare
