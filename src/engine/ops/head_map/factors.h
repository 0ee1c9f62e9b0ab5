// The factors of a few tokens as an operator of torch's dispatcher, without a derivative.
#pragma once

#include <algorithm>

#include "engine/ops/backend.h"
#include "engine/ops/described.h"
#include "headroom/ops/head_map_factors.h"

namespace headroom::ops {

struct FewFactors {
  static constexpr const char* kName = "head_map_factors_fused";
  struct Arguments {
    at::Tensor x;
    HeadMapWeights weights;
    template <class V>
    void visit(V& v) {
      v("x", x);
      v("w1", weights.w1);
      v("w2", weights.w2);
      v("gate", weights.gate);
      v("tanh_gelu", weights.tanh_gelu);
    }
  };
};

Backends<FewFactors::Arguments>& factors_backends();

// One of the weights, whose type is the result's.
inline const at::Tensor& a_weight(const HeadMapWeights& w) {
  return w.w1.empty() ? w.gate[0] : w.w1[0];
}

// The sizes of a call's weights.
struct FactorSizes {
  std::int64_t stages, groups = 1, inner = 0, rank = 0, m = 0;  // C, I, R, m; without low-rank maps 0
  std::int64_t gates = 0;                                       // H, or 0

  explicit FactorSizes(const HeadMapWeights& w)
      : stages(static_cast<std::int64_t>(std::max(w.w1.size(), w.gate.size()))) {
    if (!w.w1.empty()) {
      groups = w.w1[0].size(0);
      inner = w.w1[0].size(2);
      rank = w.w2[0].size(3);
      m = w.w2[0].size(4);
    }
    gates = w.gate.empty() ? 0 : w.gate[0].size(1);
  }
  std::int64_t low_rank() const { return 2 * rank * groups * m; }  // numbers of u and w
  std::int64_t width() const { return low_rank() + gates; }        // of a stage
};

}  // namespace headroom::ops
