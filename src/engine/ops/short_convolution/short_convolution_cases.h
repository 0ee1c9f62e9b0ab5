// Cases (operator_cases.h) of short_convolution: fewer tokens than taps, one tap, widths that are no multiple of a SIMD
// vector, earlier inputs.
#pragma once

#include "engine/ops/operator_cases.h"
#include "headroom/ops/short_convolution.h"

namespace headroom::ops {

struct ShortConvolutionCase {
  std::int64_t b, g, t, e, c;
  bool past = false;
  Layout layout = Layout::by_token;

  std::string name() const;
  Problem problem(const Setting& setting) const;
  std::vector<Precision> precisions() const;
};

std::vector<ShortConvolutionCase> short_convolution_cases();

}  // namespace headroom::ops
