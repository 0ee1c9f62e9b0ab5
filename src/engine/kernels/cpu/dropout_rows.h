// Dropout whose mask is a function of a seed and the element's place: nothing to store, the same backward as forward,
// the same with any number of threads.
#pragma once

#include <cstdint>

namespace headroom::kernels {

struct DropoutRule {
  std::uint64_t seed;
  std::int32_t threshold;  // an element whose random 31 bits are below it is dropped
  float scale;             // of those that stay
  bool relu;               // forward: negative elements become 0 first
};

// Elements [begin, end): y = x * scale (max(x, 0) * scale with relu), or 0 where dropped. T: float or c10::BFloat16.
template <class T>
void dropout(const DropoutRule& rule, const T* x, std::int64_t begin, std::int64_t end, T* y);

// The backward pass: dx = dy * scale, 0 where dropped, with relu 0 where the forward result `y` is 0. `y` may be
// null without relu.
template <class T>
void dropout_backward(const DropoutRule& rule, const T* d_y, const T* y, std::int64_t begin, std::int64_t end, T* d_x);

}  // namespace headroom::kernels
