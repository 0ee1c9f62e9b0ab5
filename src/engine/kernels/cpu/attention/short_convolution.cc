#include "delta_rule.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/attention/short_convolution.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h:
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "engine/kernels/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headroom::kernels::HWY_NAMESPACE {
namespace short_convolution {

HWY_INLINE Vector sigmoid(const Vector x) {
  const Vector one = hn::Set(Tag(), 1.0F);
  const Vector least = hn::Set(Tag(), -80.0F);  // exp(80) is finite
  return hn::Div(one, hn::Add(one, hn::Exp(Tag(), hn::Neg(hn::Max(x, least)))));
}

// Returns row t, which may be before the first token; null stands for a row of zeros.
HWY_INLINE const float* row_of(const ConvolutionInput& in, std::int64_t t) {
  if (t >= 0) {
    return in.x.data + t * in.x.stride;
  }
  return in.past.data == nullptr ? nullptr : in.past.data + (in.taps - 1 + t) * in.past.stride;
}

// Returns the convolution at token t before SiLU, for the lanes from i on.
template <class Part>
HWY_INLINE Vector convolved(const ConvolutionInput& in, std::int64_t t, const Part& part, std::int64_t i) {
  Vector sum = hn::Zero(Tag());
  for (std::int64_t j = 0; j < in.taps; ++j) {
    if (const float* row = row_of(in, t - in.taps + 1 + j); row != nullptr) {
      sum = hn::MulAdd(part.load(in.w + j * in.channels + i), part.load(row + i), sum);
    }
  }
  return sum;
}

}  // namespace short_convolution

void ShortConvolution(const ConvolutionInput& in, Strided<float> y) {
  for (std::int64_t t = 0; t < in.tokens; ++t) {
    for_lanes(0, in.channels, [&](auto part, std::int64_t i) HWY_ATTR {
      const Vector sum = short_convolution::convolved(in, t, part, i);
      part.store(hn::Mul(sum, short_convolution::sigmoid(sum)), y.data + t * y.stride + i);
    });
  }
}

// The gradient of x_t depends on the gradients of the sums at tokens t .. t + c - 1, stored in a ring buffer of c rows.
void ShortConvolutionBackward(const ConvolutionInput& in, Strided<const float> d_y, Strided<float> d_x, float* d_w) {
  const std::int64_t c = in.taps, e = in.channels;
  Buffer ring(c * e);
  std::fill_n(d_w, c * e, 0.0F);
  for (std::int64_t t = 0; t < in.tokens + c - 1; ++t) {
    float* d_sum = ring.data() + t % c * e;
    if (t >= in.tokens) {
      std::fill_n(d_sum, e, 0.0F);
    } else {
      for_lanes(0, e, [&](auto part, std::int64_t i) HWY_ATTR {
        const Vector one = hn::Set(Tag(), 1.0F), sum = short_convolution::convolved(in, t, part, i);
        const Vector s = short_convolution::sigmoid(sum);
        const Vector slope = hn::Mul(s, hn::MulAdd(sum, hn::Sub(one, s), one));  // derivative of sum * sigmoid(sum)
        const Vector d = hn::Mul(part.load(d_y.data + t * d_y.stride + i), slope);
        part.store(d, d_sum + i);
        for (std::int64_t j = 0; j < c; ++j) {
          if (const float* row = short_convolution::row_of(in, t - c + 1 + j); row != nullptr) {
            float* at = d_w + j * e + i;
            part.store(hn::MulAdd(d, part.load(row + i), part.load(at)), at);
          }
        }
      });
    }
    if (const std::int64_t done = t - c + 1; done >= 0) {
      for_lanes(0, e, [&](auto part, std::int64_t i) HWY_ATTR {
        Vector d = hn::Zero(Tag());
        for (std::int64_t j = 0; j < c; ++j) {  // tap j of token done + c - 1 - j
          d = hn::MulAdd(part.load(in.w + j * e + i), part.load(ring.data() + (t - j) % c * e + i), d);
        }
        part.store(d, d_x.data + done * d_x.stride + i);
      });
    }
  }
}

}  // namespace headroom::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headroom::kernels {

HWY_EXPORT(ShortConvolution);
HWY_EXPORT(ShortConvolutionBackward);

void short_convolution(const ConvolutionInput& in, Strided<float> y) {
  HWY_DYNAMIC_DISPATCH(ShortConvolution)(in, y);
}
void short_convolution_backward(const ConvolutionInput& in, Strided<const float> d_y, Strided<float> d_x, float* d_w) {
  HWY_DYNAMIC_DISPATCH(ShortConvolutionBackward)(in, d_y, d_x, d_w);
}

}  // namespace headroom::kernels
#endif
