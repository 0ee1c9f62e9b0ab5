#include "cases.h"

#include <fmt/format.h>

#include "headroom/ops/muon.h"

namespace headroom::ops {

std::vector<MuonCase> muon_cases() {
  std::vector<MuonCase> all;
  for (const auto& [rows, columns] : {std::pair{8, 24}, {24, 8}, {7, 7}, {1, 5}, {5, 1}}) {
    for (const bool bfloat16 : {false, true}) {
      all.push_back({rows, columns, bfloat16, all.size() % 3 == 0 ? Layout::gaps : Layout::dense});
    }
  }
  return all;
}

std::string MuonCase::name() const {
  return fmt::format("{}x{}{}{}", rows, columns, bfloat16 ? " products in bfloat16" : "", name_of(layout));
}

Problem MuonCase::problem(const Setting& setting) const {
  const auto run = [half = bfloat16](const std::vector<at::Tensor>& x, Implementation implementation) {
    return orthogonal(x[0], {.bfloat16 = half, .implementation = implementation});
  };
  return {{Draw{setting, layout}.activation({3, rows, columns})}, run, /*differentiable=*/false};
}

// Five steps, each of which magnifies errors by at most 3.4445, of sums of up to 24 products.
std::vector<Precision> MuonCase::precisions() const {
  if (bfloat16) {
    return {{at::kFloat, 0.1}};
  }
  return {{at::kFloat, 1e-4}, {at::kDouble, 1e-11}};
}

}  // namespace headroom::ops
