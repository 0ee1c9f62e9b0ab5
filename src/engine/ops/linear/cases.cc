#include "cases.h"

#include <fmt/format.h>

#include <cmath>

#include "headroom/ops/linear.h"

namespace headroom::ops {

std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> all;
  for (LinearCase c : std::vector<LinearCase>{{1, 1, 1},
                                              {1, 37, 19},
                                              {1, 515, 1031},
                                              {2, 3, 5, false},
                                              {7, 64, 13},
                                              {131, 17, 101},
                                              {64, 128, 64, false},
                                              {257, 130, 67}}) {
    for (const Layout layout : {Layout::dense, Layout::swapped, Layout::gaps}) {
      c.layout = layout;
      all.push_back(c);
    }
  }
  return all;
}

std::string LinearCase::name() const {
  return fmt::format("N{} {}x{}{}{}", n, d_in, d_out, bias ? "" : " without bias", name_of(layout));
}

Problem LinearCase::problem(const Setting& setting) const {
  const Draw draw{setting, layout};
  std::vector<at::Tensor> leaves = {draw.activation({n, d_in}), draw.activation({d_in, d_out})};
  if (bias) {
    leaves.push_back(draw.activation({d_out}));
  }
  return {leaves, [](const std::vector<at::Tensor>& x, Implementation implementation) {
            return linear(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt, implementation);
          }};
}

// Sums of n products, in whatever order, differ by a random walk of n roundings of 2^-24: under 2e-6 of the largest
// entry for the few hundred here. In bfloat16 result and weights are rounded to 8 bits, at most 2^-9 each; a bias's
// gradient adds up n of those.
std::vector<Precision> LinearCase::precisions() const {
  return {{at::kFloat, 2e-6}, {at::kBFloat16, 3.0 / 256 + std::sqrt(static_cast<double>(n)) / 512}};
}

}  // namespace headroom::ops
