// The dense product as an operator of torch's dispatcher, and its backward pass.
#pragma once

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"

namespace headroom::ops {

struct FusedLinear {
  static constexpr const char* kName = "linear_fused";
  struct Arguments {
    at::Tensor x, w;
    OptionalTensor b;
    template <class V>
    void visit(V& v) {
      v("x", x);
      v("w", w);
      v("b", b);
    }
  };
  using Results = Single;
  struct Backward {
    at::Tensor grad, x, w;
    std::vector<bool> wanted;  // of x, w, b; empty: all
    template <class V>
    void visit(V& v) {
      v("grad", grad);
      v("x", x);
      v("w", w);
      v("wanted", wanted);
    }
    bool wants(std::size_t i) const { return wanted.empty() || wanted[i]; }
  };
  static Backward save(const Arguments& in, const Results& /*out*/) { return {{}, in.x, in.w, {}}; }
};

Backends<FusedLinear::Arguments>& linear_backends();
at::Tensor linear_reference(const FusedLinear::Arguments& in);

}  // namespace headroom::ops
