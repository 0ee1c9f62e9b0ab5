// The cases of row_terms: rows alone, and with directions.
#pragma once

#include <fmt/format.h>

#include "engine/ops/cases.h"
#include "row_terms.h"

namespace headroom::ops {

struct RowTermsCase {
  std::int64_t b, heads, n, e, directions;
  Layout layout = Layout::dense;

  std::string name() const { return fmt::format("B{} X{} n{} e{} R{}{}", b, heads, n, e, directions, name_of(layout)); }
  Problem problem(const Setting& setting) const {
    const Draw draw{setting, layout};
    return {{draw.activation({b, heads, n, e}), draw.parameter({heads, directions, e})},
            [](const std::vector<at::Tensor>& x, Implementation implementation) {
              return row_terms(x[0], x[1], implementation);
            }};
  }
  // Sums of e <= 64 products (of B n <= 210 for a direction's gradient), each rounded to 2^-24. Of bfloat16, the sums
  // are in float32 and the rows' gradient is rounded to 8 bits.
  std::vector<Precision> precisions() const { return {{at::kFloat, 2e-6}, {at::kBFloat16, 1.0 / 256}}; }
};

inline std::vector<RowTermsCase> row_terms_cases() {
  std::vector<RowTermsCase> all;
  for (RowTermsCase c : std::vector<RowTermsCase>{
           {1, 1, 1, 1, 0}, {2, 3, 5, 7, 0}, {2, 2, 17, 13, 3}, {1, 4, 33, 64, 1}, {3, 1, 70, 41, 2}}) {
    for (const Layout layout : {Layout::dense, Layout::swapped, Layout::gaps}) {
      c.layout = layout;
      all.push_back(c);
    }
  }
  return all;
}

}  // namespace headroom::ops
