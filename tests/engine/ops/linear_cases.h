// Cases (operator_cases.h) of linear: one row, a few and many, with and without a bias.
#pragma once

#include <fmt/format.h>

#include <cmath>

#include "headroom/ops/linear.h"
#include "operator_cases.h"

namespace headroom::ops {

struct LinearCase {
  std::int64_t n, d_in, d_out;
  bool bias = true;
  Layout layout = Layout::dense;
  std::string name() const {
    return fmt::format("N{} {}x{}{}{}", n, d_in, d_out, bias ? "" : " without bias", name_of(layout));
  }
  Problem problem(const Setting& setting) const {
    const Draw draw{setting, layout};
    std::vector<at::Tensor> leaves = {draw.activation({n, d_in}), draw.activation({d_in, d_out})};
    if (bias) {
      leaves.push_back(draw.activation({d_out}));
    }
    return {leaves, [](const std::vector<at::Tensor>& x, Implementation implementation) {
              return linear(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt, implementation);
            }};
  }
  // Sums of n products in different orders differ by a random walk of n roundings of 2^-24: under 2e-6 of the largest
  // element for the few hundred here. In bfloat16, the result and the weights are rounded to 8 bits, by at most 2^-9
  // each; a bias's gradient sums n of these errors.
  std::vector<Precision> precisions() const {
    return {{at::kFloat, 2e-6}, {at::kBFloat16, 3.0 / 256 + std::sqrt(static_cast<double>(n)) / 512}};
  }
};

inline std::vector<LinearCase> linear_cases() {
  return in_layouts(std::vector<LinearCase>{{1, 1, 1},
                                            {1, 37, 19},
                                            {1, 515, 1031},
                                            {2, 3, 5, false},
                                            {7, 64, 13},
                                            {131, 17, 101},
                                            {64, 128, 64, false},
                                            {257, 130, 67},
                                            {2051, 24, 40, false}},
                    {Layout::dense, Layout::swapped, Layout::gaps});
}

}  // namespace headroom::ops
