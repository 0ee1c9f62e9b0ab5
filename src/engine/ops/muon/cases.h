// The cases of Muon's orthogonalisation: wide, tall, square, and a single row or column.
#pragma once

#include "engine/ops/cases.h"

namespace headroom::ops {

struct MuonCase {
  std::int64_t rows, columns;
  bool bfloat16 = false;
  Layout layout = Layout::dense;
  std::string name() const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<MuonCase> muon_cases();

}  // namespace headroom::ops
