// Cases (operator_cases.h) of linear_cross_entropy: one row, several blocks of rows, large vocabularies.
#pragma once

#include <fmt/format.h>

#include "headroom/ops/linear.h"
#include "operator_cases.h"

namespace headroom::ops {

struct CrossEntropyCase {
  std::int64_t n, d, v;
  bool bias = true;
  Layout layout = Layout::dense;
  std::string name() const {
    return fmt::format("N{} d{} V{}{}{}", n, d, v, bias ? "" : " without bias", name_of(layout));
  }
  Problem problem(const Setting& setting) const {
    const Draw draw{setting, layout};
    std::vector<at::Tensor> leaves = {draw.activation({n, d}), draw.activation({d, v})};
    if (bias) {
      leaves.push_back(draw.activation({v}));
    }
    at::Tensor target = at::randint(v, {n}, at::kLong);
    target.masked_fill_(at::rand({n}).lt(0.2), -1);
    target[0] = v - 1;
    target = target.to(setting.device);
    return {leaves, [target](const std::vector<at::Tensor>& x, Implementation implementation) {
              return linear_cross_entropy(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt, target,
                                          implementation);
            }};
  }
  // Each sum has at most a few thousand terms, each rounded to 2^-24 or 2^-53. In bfloat16, logits, probabilities and
  // gradients are rounded to 8 bits, by 2^-9 each. With logits of size ~10, this is an error of a few percent in a
  // probability.
  std::vector<Precision> precisions() const {
    return {{at::kFloat, 5e-6}, {at::kDouble, 1e-13}, {at::kBFloat16, 3e-2}};
  }
};

inline std::vector<CrossEntropyCase> cross_entropy_cases() {
  return {{1, 1, 1},
          {7, 5, 3, false},
          {7, 5, 3, true, Layout::gaps},
          {131, 17, 101, true, Layout::swapped},
          {2053, 8, 1000},
          {1500, 24, 2003, false, Layout::swapped}};
}

}  // namespace headroom::ops
