// Output layer and cross-entropy as an operator of torch's dispatcher, and its backward pass.
#pragma once

#include "engine/ops/backend.h"
#include "engine/ops/operator.h"

namespace headroom::ops {

// The gradients of a mean are known as soon as the logits are, but for one factor: they are made in the forward pass,
// block by block, and the logits are gone before the next block.
struct FusedLinearCrossEntropy {
  static constexpr const char* kName = "linear_cross_entropy_fused";
  struct Arguments {
    at::Tensor x, w, target;
    OptionalTensor b;
    bool with_gradients = true;
    template <class V>
    void visit(V& v) {
      v("x", x);
      v("w", w);
      v.constant("target", target);
      v("b", b);
      v("with_gradients", with_gradients);
    }
  };
  struct Results {
    at::Tensor loss, d_x, d_w, d_b;  // gradients: empty where there is none
    template <class V>
    void visit(V& v) {
      v("loss", loss);
      v("d_x", d_x);
      v("d_w", d_w);
      v("d_b", d_b);
    }
  };
  struct Backward {
    at::Tensor grad, d_x, d_w;
    OptionalTensor d_b;
    template <class V>
    void visit(V& v) {
      v("grad", grad);
      v("d_x", d_x);
      v("d_w", d_w);
      v("d_b", d_b);
    }
  };
  static Backward save(const Arguments& in, const Results& out) {
    return {{}, out.d_x, out.d_w, in.b ? OptionalTensor(out.d_b) : std::nullopt};
  }
  // The backward pass, on any device.
  static Arguments scaled(const Backward& back) {
    const auto scale = [&](const at::Tensor& d) { return d * back.grad.to(d.scalar_type()); };
    return {scale(back.d_x), scale(back.d_w), {}, back.d_b ? OptionalTensor(scale(*back.d_b)) : std::nullopt, true};
  }
};

Backends<FusedLinearCrossEntropy::Arguments>& cross_entropy_backends();

// The loss of each row, 0 where its target is below 0, block by block of rows.
at::Tensor losses_in_blocks(const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias, const at::Tensor& target);

inline at::ScalarType loss_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace headroom::ops
