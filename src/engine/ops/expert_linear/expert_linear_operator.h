// expert_linear as an operator of torch's dispatcher.
#pragma once

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"
#include "headroom/ops/linear.h"

namespace headroom::ops {

struct FusedExpertLinear {
  static constexpr const char* kName = "expert_linear_fused";
  struct Arguments : ExpertLinearInputs {
    template <class V>
    void visit(V& v) {
      v("input", input, "bank", bank);
      v.constant("index", index);
      v("weight", weight, "sum_heads", sum_heads);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }
};

Backends<FusedExpertLinear::Arguments>& expert_linear_backends();

// The CPU backend's forward pass: batch-invariant, not differentiable.
at::Tensor expert_matmul_batch_invariant(const ExpertLinearInputs& in);

}  // namespace headroom::ops
