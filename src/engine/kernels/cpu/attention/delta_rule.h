// The gated delta rule of one head, in chunks of kDeltaChunk tokens, and the short convolution in front of it
// (equations in headroom/ops/gated_delta.h and short_convolution.h). All matrices are row-major float32.
//
// Letters: T tokens, e channels of queries and keys, w of values, c taps, N = ceil(T / kDeltaChunk).
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/matmul/matrix.h"

namespace headroom::kernels {

constexpr std::int64_t kDeltaChunk = 64;

struct DeltaShape {
  std::int64_t tokens, d_key, d_value;
};
struct DeltaHead {
  Strided<const float> q, k, v;   // [T, e], [T, e], [T, w]
  const float *beta, *log_decay;  // [T]
};
// Values that the forward pass saves for the backward pass.
template <class Float>
struct DeltaSaved {
  Float* states;           // [N, e, w] before each chunk
  Strided<Float> written;  // [T, w]: u_t = beta_t (v_t - S^T k_t)
};
struct DeltaGradients {
  Strided<float> q, k, v;
  float *beta, *log_decay;
};

// Computes o [T, w] and the state [e, w] after the last token; `before` is the state before the first one, null: 0.
void delta_rule(const DeltaShape& shape, const DeltaHead& head, const float* before, const DeltaSaved<float>& saved,
                Strided<float> o, float* after);
// Computes the gradients for the gradient d_o [T, w].
void delta_rule_backward(const DeltaShape& shape, const DeltaHead& head, const DeltaSaved<const float>& saved,
                         Strided<const float> d_o, const DeltaGradients& d);

struct ConvolutionInput {
  std::int64_t tokens, channels, taps;
  Strided<const float> x;     // [T, e]
  Strided<const float> past;  // [c - 1, e] before the first token; null: 0
  const float* w;             // [c, e]
};

void short_convolution(const ConvolutionInput& in, Strided<float> y);
// Computes the gradients of x [T, e] and w [c, e] for the gradient d_y [T, e].
void short_convolution_backward(const ConvolutionInput& in, Strided<const float> d_y, Strided<float> d_x, float* d_w);

}  // namespace headroom::kernels
