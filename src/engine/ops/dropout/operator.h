// Dropout as an operator of torch's dispatcher, and its backward pass.
#pragma once

#include <algorithm>
#include <cmath>

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"

namespace headroom::ops {

struct FusedDropout {
  static constexpr const char* kName = "dropout_fused";
  struct Rule {
    double p = 0.0;
    std::int64_t seed = 0;
    bool relu = false;
    std::int64_t first_row = 0;
    // An element whose random 31 bits are below it is dropped.
    std::int32_t threshold() const { return static_cast<std::int32_t>(std::floor(p * 0x1p31)); }
    template <class V>
    void visit(V& v) {
      v("p", p);
      v("seed", seed);
      v("relu", relu);
      v("first_row", first_row);
    }
  };
  struct Arguments {
    at::Tensor x;
    Rule rule;
    template <class V>
    void visit(V& v) {
      v("x", x);
      rule.visit(v);
    }
  };
  using Results = Single;
  struct Backward {
    at::Tensor grad;
    OptionalTensor y;  // with relu
    Rule rule;
    template <class V>
    void visit(V& v) {
      v("grad", grad);
      v("y", y);
      rule.visit(v);
    }
  };
  static Backward save(const Arguments& in, const Results& out) {
    return {{}, in.rule.relu ? OptionalTensor(out.result) : std::nullopt, in.rule};
  }
};

Backends<FusedDropout::Arguments>& dropout_backends();

// The first axis counts the rows of the batch.
inline std::int64_t n_rows(const at::Tensor& x) {
  return x.dim() == 0 ? 1 : std::max<std::int64_t>(1, x.size(0));
}

}  // namespace headroom::ops
