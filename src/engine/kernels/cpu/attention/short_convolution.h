// The short convolution of one head (equation in headroom/ops/short_convolution.h). All matrices are row-major float32.
//
// Letters: T tokens, e channels, c taps.
#pragma once

#include <cstdint>

#include "engine/kernels/cpu/matmul/matrix.h"

namespace headroom::kernels {

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
