// Cases (operator_cases.h) of AdamW's step (sizes around a SIMD vector's, matrices of two layouts) and of Muon's
// orthogonalisation (wide, tall, square, a single row or column).
#pragma once

#include "engine/ops/operator_cases.h"
#include "headroom/ops/optimizers.h"

namespace headroom::ops {

struct AdamWLists {
  std::vector<at::Tensor> parameters, gradients, m, v;
};

struct AdamWCase {
  std::vector<std::vector<std::int64_t>> shapes;
  Layout layout = Layout::dense;
  Role role = Role::tested;

  std::string name() const;
  AdamWLists lists(const Setting& setting) const;  // m and v are 0
  // Parameters and moments after 20 steps, concatenated.
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<AdamWCase> adamw_cases(Role role);

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
