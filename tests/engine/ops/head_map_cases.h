// Cases (operator_cases.h) of head_map_factors on the decode path: low-rank maps and gates, with and without groups.
#pragma once

#include <fmt/format.h>

#include <cmath>

#include "headroom/ops/head_map.h"
#include "operator_cases.h"

namespace headroom::ops {

struct FactorsCase {
  std::int64_t rows, d, stages, groups, inner, rank, m;
  bool low_rank = true, gate = true, tanh_gelu = false;

  std::string name() const {
    return fmt::format("{} rows of {} stages {} groups {} inner {} rank {} m {}{}{}{}", rows, d, stages, groups, inner,
                       rank, m, low_rank ? " low rank" : "", gate ? " gate" : "", tanh_gelu ? " tanh" : "");
  }
  // Returns x, then the weights in the order of HeadMapWeights. Some are strided.
  std::vector<at::Tensor> leaves(const Setting& setting) const {
    const Draw dense{setting}, swapped{setting, Layout::swapped};
    std::vector<at::Tensor> all = {swapped.activation({rows, d})};
    const auto stages_of = [&](const auto& make) {
      for (std::int64_t stage = 0; stage < stages; ++stage) {
        all.push_back(make());
      }
    };
    if (low_rank) {
      stages_of([&] { return swapped.activation({groups, d, inner}); });
      stages_of([&] { return dense.activation({groups, inner, 2, rank, m}); });
    }
    if (gate) {
      stages_of([&] { return swapped.activation({d, groups * m}); });
    }
    return all;
  }
  HeadMapWeights weights(const std::vector<at::Tensor>& leaves) const {
    HeadMapWeights of{.tanh_gelu = tanh_gelu};
    auto next = leaves.begin() + 1;
    const auto take = [&](std::vector<at::Tensor>& to) {
      to.assign(next, next + stages);
      next += stages;
    };
    if (low_rank) {
      take(of.w1);
      take(of.w2);
    }
    if (gate) {
      take(of.gate);
    }
    return of;
  }
  Problem problem(const Setting& setting) const {
    return {leaves(setting),
            [c = *this](const std::vector<at::Tensor>& x, Implementation implementation) {
              return head_map_factors(x[0], c.weights(x), implementation);
            },
            /*differentiable=*/false};  // the fused operator has no derivative
  }
  // Both matrix multiplications accumulate in float32. Normalising u would magnify errors if all elements of a group
  // were small, which is unlikely for random elements. A bfloat16 result is rounded once.
  std::vector<Precision> precisions() const {
    const double sums = static_cast<double>(d + inner + m) * std::ldexp(1.0, -24) * 4.0;
    return {{at::kFloat, sums}, {at::kBFloat16, sums + std::ldexp(1.0, -8)}};
  }
};

inline std::vector<FactorsCase> factors_cases() {
  return {{1, 1, 1, 1, 1, 1, 1},
          {1, 19, 2, 1, 12, 2, 3},
          {7, 33, 2, 3, 5, 1, 2, true, true, true},
          {16, 24, 1, 2, 17, 3, 5, true, false},
          {5, 31, 2, 1, 1, 1, 7, false, true},
          {0, 3, 2, 1, 4, 1, 2}};
}

}  // namespace headroom::ops
