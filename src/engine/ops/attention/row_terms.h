// Squared lengths of rows and their dot products with a few directions, in one pass: the terms of a mixture of Gaussian
// keys that depend on the query or the key alone.
#pragma once

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"

namespace headroom::ops {

struct RowTerms {
  static constexpr const char* kName = "row_terms";
  struct Arguments {
    at::Tensor t, directions;
    template <class V>
    void visit(V& v) {
      v("t", t, "directions", directions);
    }
  };
  using Results = Single;
  using Backward = GradAndInputs<Arguments>;
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in}; }
};

Backends<RowTerms::Arguments>& row_terms_backends();

// t [B, X, n, e] and directions [X, R, e], R may be 0. Returns [B, X, 1 + R, n] in float32 (float64 if t is): |t_i|^2,
// then t_i . direction_r. Differentiable in both.
at::Tensor row_terms(const at::Tensor& t, const at::Tensor& directions,
                     Implementation implementation = Implementation::automatic);

}  // namespace headroom::ops
