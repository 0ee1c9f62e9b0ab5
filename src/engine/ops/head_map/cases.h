// The cases of the factors of head maps: low-rank maps and gates, in groups and alone, of a few rows.
#pragma once

#include "engine/ops/cases.h"
#include "headroom/ops/head_map_factors.h"

namespace headroom::ops {

struct FactorsCase {
  std::int64_t rows, d, stages, groups, inner, rank, m;
  bool low_rank = true, gate = true, tanh_gelu = false;

  std::string name() const;
  // x, then the weights as `weights` lists them.
  std::vector<at::Tensor> leaves(const Setting& setting) const;
  HeadMapWeights weights(const std::vector<at::Tensor>& leaves) const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<FactorsCase> factors_cases();

}  // namespace headroom::ops
