// Cases (operator_cases.h) of expert_linear: experts per head and per slot, weighted and summed.
#pragma once

#include <fmt/format.h>

#include "headroom/ops/linear.h"
#include "operator_cases.h"

namespace headroom::ops {

struct ExpertLinearCase {
  std::int64_t n, heads, choices, experts, d_in, d_out;
  bool per_head = false, sum_heads = false, weighted = true;
  bool slots = false;  // each head is a slot; all slots share one bank, K = 1
  Layout layout = Layout::dense;

  std::string name() const {
    return fmt::format("N{} H{} K{} E{} {}x{}{}{}{}{}{}", n, heads, choices, experts, d_in, d_out,
                       per_head ? " per head" : "", sum_heads ? " summed" : "", weighted ? " weighted" : "",
                       slots ? " slots" : "", name_of(layout));
  }
  at::Tensor index() const {
    if (slots) {
      return at::rand({n, experts}).argsort(std::int64_t{-1}).narrow(1, 0, heads).unsqueeze(2);
    }
    return at::rand({n, heads, experts}).argsort(std::int64_t{-1}).narrow(2, 0, choices) +
           (at::arange(heads) * experts).view({1, heads, 1});
  }
  ExpertLinearInputs inputs(const Setting& setting) const {
    const Draw draw{setting, layout};
    const std::int64_t matrices = slots ? experts : heads * experts;
    ExpertLinearInputs in{.input = per_head ? draw.activation({n, heads, d_in}) : draw.activation({n, d_in}),
                          .bank = draw.activation({matrices, d_in, d_out}),
                          .index = index().to(setting.device),
                          .weight = {},
                          .sum_heads = sum_heads};
    if (weighted) {
      in.weight = draw.parameter({n, heads, choices});
    }
    return in;
  }
  Problem problem(const Setting& setting) const {
    const ExpertLinearInputs in = inputs(setting);
    std::vector<at::Tensor> leaves = {in.input, in.bank};
    if (in.weight) {
      leaves.push_back(*in.weight);
    }
    return {leaves,
            [index = in.index, sum = sum_heads](const std::vector<at::Tensor>& x, Implementation implementation) {
              return expert_linear({.input = x[0],
                                    .bank = x[1],
                                    .index = index,
                                    .weight = x.size() > 2 ? std::optional(x[2]) : std::nullopt,
                                    .sum_heads = sum},
                                   implementation);
            }};
  }
  // Elements sum at most max(d_in, N) * K * H products, each rounded to 2^-24; errors grow like a random walk. In
  // bfloat16, the product, the scaled row, the result and the weighting are rounded, by at most 2^-9 each.
  std::vector<Precision> precisions() const { return {{at::kFloat, 2e-6}, {at::kBFloat16, 4.0 / 256}}; }
};

inline std::vector<ExpertLinearCase> expert_linear_cases() {
  return in_layouts(std::vector<ExpertLinearCase>{{1, 1, 1, 1, 1, 1},
                                                  {7, 2, 2, 3, 13, 5},
                                                  {31, 3, 2, 5, 17, 19, true, true},
                                                  {64, 1, 4, 16, 33, 7, false, false, false},
                                                  {29, 4, 1, 6, 8, 24, true, false, false},
                                                  {53, 2, 3, 3, 11, 37, true, true, false},
                                                  {130, 2, 2, 4, 41, 23, false, true},
                                                  {40, 3, 1, 5, 12, 9, false, false, true, true},
                                                  {64, 2, 2, 4, 32, 48},
                                                  {67, 2, 2, 4, 71, 17, false, true}},
                    {Layout::dense, Layout::swapped, Layout::gaps});
}

}  // namespace headroom::ops
