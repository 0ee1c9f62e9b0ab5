// The fused operator of the gated delta rule, which keeps what its backward pass needs.
#pragma once

#include "engine/ops/operator.h"
#include "headroom/ops/gated_delta.h"

namespace headroom::ops {

// Results and gradients are float32. N = ceil(T / kDeltaChunk).
struct FusedGatedDelta {
  static constexpr const char* kName = "gated_delta_fused";
  struct Inputs {
    at::Tensor q, k, v, beta, log_decay;
    template <class V>
    void visit(V& visitor) {
      visitor("q", q, "k", k, "v", v, "beta", beta, "log_decay", log_decay);
    }
  };
  struct Arguments : Inputs {
    OptionalTensor state;
    template <class V>
    void visit(V& visitor) {
      Inputs::visit(visitor);
      visitor.constant("state", state);
    }
  };
  struct Results {
    at::Tensor o, after;
    at::Tensor states;   // [B, H, N, e, w] before each chunk
    at::Tensor written;  // [B, H, T, w] u_t
    template <class V>
    void visit(V& visitor) {
      visitor("o", o, "after", after, "states", states, "written", written);
    }
  };
  struct Backward {
    at::Tensor grad;
    Inputs in;
    at::Tensor states, written;
    template <class V>
    void visit(V& visitor) {
      visitor("grad", grad);
      in.visit(visitor);
      visitor("states", states, "written", written);
    }
  };
  static Backward save(const Arguments& in, const Results& out) { return {{}, in, out.states, out.written}; }
};

}  // namespace headroom::ops
