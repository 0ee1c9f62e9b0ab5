// Cases (operator_cases.h) of AdamW's step: sizes around a SIMD vector's, matrices in two layouts. Cases of Muon's
// orthogonalisation: wide, tall, square, a single row or column.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "headroom/ops/optimizers.h"
#include "operator_cases.h"

namespace headroom::ops {

struct AdamWLists {
  std::vector<at::Tensor> parameters, gradients, m, v;
};

struct AdamWCase {
  std::vector<std::vector<std::int64_t>> shapes;
  Layout layout = Layout::dense;

  std::string name() const {
    std::string name;
    for (const std::vector<std::int64_t>& shape : shapes) {
      name += fmt::format("{}{}", name.empty() ? "" : " and ", fmt::join(shape, "x"));
    }
    return name + name_of(layout);
  }
  // Returns random parameters and gradients; m and v are 0.
  AdamWLists lists(const Setting& setting) const {
    const Draw draw{setting, layout};
    AdamWLists all;
    for (const std::vector<std::int64_t>& shape : shapes) {
      all.parameters.push_back(draw.activation(shape));
      all.gradients.push_back(draw.activation(shape));
      all.m.push_back(at::zeros_like(all.parameters.back()));
      all.v.push_back(at::zeros_like(all.parameters.back()));
    }
    return all;
  }
  // The result joins the parameters and moments after 20 steps.
  Problem problem(const Setting& setting) const {
    const AdamWLists lists = this->lists(setting);
    std::vector<at::Tensor> leaves = lists.parameters;
    leaves.insert(leaves.end(), lists.gradients.begin(), lists.gradients.end());
    const auto run = [](const std::vector<at::Tensor>& x, Implementation implementation) {
      const auto half = x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2);
      AdamWLists all;
      for (auto p = x.begin(); p != half; ++p) {
        all.parameters.push_back(p->clone());
        all.m.push_back(at::zeros_like(*p));
        all.v.push_back(at::zeros_like(*p));
      }
      for (std::int64_t step = 1; step <= 20; ++step) {
        all.gradients.clear();
        for (auto g = half; g != x.end(); ++g) {
          all.gradients.push_back(*g * (1.0 / static_cast<double>(step)));
        }
        adamw_step(all.parameters, all.gradients, all.m, all.v, step,
                   {.learning_rate = 0.01,
                    .beta2 = 0.95,
                    .weight_decay = 0.1,
                    .gradient_scale = 0.3,
                    .implementation = implementation});
      }
      std::vector<at::Tensor> flat;
      for (const auto* list : {&all.parameters, &all.m, &all.v}) {
        for (const at::Tensor& t : *list) {
          flat.push_back(t.flatten() / t.detach().abs().max());  // scaled to the same size
        }
      }
      return at::cat(flat);
    };
    return {leaves, run, /*differentiable=*/false};
  }
  // Each step changes a parameter by about the learning rate and rounds it once, so there are 20 roundings.
  std::vector<Precision> precisions() const { return {{at::kFloat, 20 * std::ldexp(1.0, -23)}}; }
};

struct MuonCase {
  std::int64_t rows, columns;
  bool bfloat16 = false;
  Layout layout = Layout::dense;
  std::string name() const {
    return fmt::format("{}x{}{}{}", rows, columns, bfloat16 ? " products in bfloat16" : "", name_of(layout));
  }
  Problem problem(const Setting& setting) const {
    const auto run = [half = bfloat16](const std::vector<at::Tensor>& x, Implementation implementation) {
      return orthogonal(x[0], {.bfloat16 = half, .implementation = implementation});
    };
    return {{Draw{setting, layout}.activation({3, rows, columns})}, run, /*differentiable=*/false};
  }
  // Each of five iterations magnifies errors by at most 3.4445 and sums up to 24 products.
  std::vector<Precision> precisions() const {
    if (bfloat16) {
      return {{at::kFloat, 0.1}};
    }
    return {{at::kFloat, 1e-4}, {at::kDouble, 1e-11}};
  }
};

inline std::vector<AdamWCase> adamw_cases() {
  return {{{{1}, {17}, {4099}}}, {{{4, 6}, {31, 33}}, Layout::swapped}};
}

inline std::vector<MuonCase> muon_cases() {
  std::vector<MuonCase> all;
  for (const auto& [rows, columns] : {std::pair{8, 24}, {24, 8}, {7, 7}, {1, 5}, {5, 1}}) {
    for (const bool bfloat16 : {false, true}) {
      all.push_back({rows, columns, bfloat16, all.size() % 3 == 0 ? Layout::gaps : Layout::dense});
    }
  }
  return all;
}

}  // namespace headroom::ops
