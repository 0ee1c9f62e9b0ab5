// Cases (operator_cases.h) of short_convolution: fewer tokens than taps, one tap, widths that are no multiple of a SIMD
// vector, earlier inputs.
#pragma once

#include <fmt/format.h>

#include <array>

#include "engine/ops/operator_cases.h"
#include "headroom/ops/short_convolution.h"

namespace headroom::ops {

struct ShortConvolutionCase {
  std::int64_t b, g, t, e, c;
  bool past = false;
  Layout layout = Layout::by_token;

  std::string name() const {
    return fmt::format("B{} G{} T{} e{} c{}{}{}", b, g, t, e, c, past ? " past" : "", name_of(layout));
  }
  Problem problem(const Setting& setting) const {
    const Draw draw{setting, layout};
    const at::Tensor x = draw.activation({b, g, t, e}), w = draw.parameter({g, e, c});
    std::optional<at::Tensor> before;
    if (past) {
      before = draw.activation({b, g, c - 1, e});
    }
    return {{x, w}, [before](const std::vector<at::Tensor>& leaves, Implementation implementation) {
              return short_convolution({leaves[0], leaves[1], before}, implementation);
            }};
  }
  // Sums of at most 7 taps, or of 66 tokens for the gradient of w. In bfloat16 the result and its gradient are rounded,
  // and each gradient again.
  std::vector<Precision> precisions() const { return {{at::kFloat, 2e-6}, {at::kBFloat16, 8e-3}}; }
};

inline std::vector<ShortConvolutionCase> short_convolution_cases() {
  std::vector<ShortConvolutionCase> all;
  constexpr std::array kLayouts = {Layout::by_token, Layout::gaps, Layout::swapped};
  for (const std::int64_t t : {1, 2, 3, 4, 5, 33}) {
    for (const auto& [e, c] : std::vector<std::pair<int, int>>{{5, 4}, {64, 4}, {19, 1}, {8, 7}}) {
      all.push_back({2, 3, t, e, c, all.size() % 2 == 1, kLayouts[all.size() % kLayouts.size()]});
    }
  }
  return all;
}

}  // namespace headroom::ops
