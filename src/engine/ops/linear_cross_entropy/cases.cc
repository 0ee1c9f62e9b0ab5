#include "cases.h"

#include <fmt/format.h>

#include "headroom/ops/linear_cross_entropy.h"

namespace headroom::ops {

std::vector<CrossEntropyCase> cross_entropy_cases(Role role) {
  if (role == Role::timed) {
    return {{2048, 512, 8000, true, Layout::dense, Role::timed}};
  }
  return {{1, 1, 1},
          {7, 5, 3, false},
          {7, 5, 3, true, Layout::gaps},
          {131, 17, 101, true, Layout::swapped},
          {2053, 8, 1000},
          {1500, 24, 2003, false, Layout::swapped}};
}

std::string CrossEntropyCase::name() const {
  return fmt::format("N{} d{} V{}{}{}", n, d, v, bias ? "" : " without bias", name_of(layout));
}

Problem CrossEntropyCase::problem(const Setting& setting) const {
  const Draw draw{setting, layout};
  std::vector<at::Tensor> leaves = {draw.activation({n, d}), draw.activation({d, v})};
  if (bias) {
    leaves.push_back(draw.activation({v}));
  }
  at::Tensor target = at::randint(v, {n}, at::kLong);
  if (role == Role::tested) {
    target.masked_fill_(at::rand({n}).lt(0.2), -1);  // some do not count
    target[0] = v - 1;
  }
  target = target.to(setting.device);
  return {leaves, [target](const std::vector<at::Tensor>& x, Implementation implementation) {
            return linear_cross_entropy(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt, target,
                                        implementation);
          }};
}

// Sums over at most a few thousand terms; rounding errors of single terms are 2^-24 and 2^-53. In bfloat16 logits,
// probabilities and gradients are rounded to 8 bits, 2^-9 each; logits of size ~10 turn that into errors of a few
// percent in a probability.
std::vector<Precision> CrossEntropyCase::precisions() const {
  return {{at::kFloat, 5e-6}, {at::kDouble, 1e-13}, {at::kBFloat16, 3e-2}};
}

}  // namespace headroom::ops
