// A case of an operator's table (ops/cases.h) as work to time.
#pragma once

#include <torch/csrc/autograd/autograd.h>

#include "engine/ops/cases.h"
#include "headroom/ops/choice.h"
#include "timing.h"

namespace headroom::bench {

inline ops::Setting setting_of(const BenchOptions& options) {
  const at::TensorOptions type = type_of(options);
  return {c10::typeMetaToScalarType(type.dtype()), type.device()};
}

// Forward and backward for all leaves.
inline Work forward_backward(ops::Problem problem, Implementation implementation) {
  for (at::Tensor& leaf : problem.leaves) {
    leaf = leaf.detach().requires_grad_(true);
  }
  const at::Tensor weight = at::randn_like(problem.run(problem.leaves, implementation).detach());
  return [problem = std::move(problem), implementation, weight] {
    torch::autograd::grad({problem.run(problem.leaves, implementation)}, problem.leaves, {weight});
  };
}

// The same with the fused version; nothing to do where there is none for the problem here.
inline Work fused_forward_backward(const ops::Problem& problem) {
  try {
    return forward_backward(problem, Implementation::fused);
  } catch (const ops::NoFusedError& /*why*/) {
    return {};
  }
}

}  // namespace headroom::bench
