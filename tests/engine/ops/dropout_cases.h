// Cases (operator_cases.h) of dropout: sizes around a SIMD vector's, and enough elements for several threads.
#pragma once

#include <fmt/format.h>

#include "headroom/ops/dropout.h"
#include "operator_cases.h"

namespace headroom::ops {

struct DropoutCase {
  std::int64_t n;  // number of rows; each has 3 elements
  bool relu;
  Layout layout = Layout::dense;
  std::string name() const { return fmt::format("{}x3{}{}", n, relu ? " relu" : "", name_of(layout)); }
  Problem problem(const Setting& setting) const {
    const DropoutOptions options{.p = 0.3, .seed = 0x123456789ABCDEFULL + static_cast<std::uint64_t>(n), .relu = relu};
    return {{Draw{setting, layout}.activation({n, 3})},
            [options](const std::vector<at::Tensor>& x, Implementation implementation) {
              return dropout(x[0], options, implementation);
            }};
  }
  // The factor and the product are rounded once each. In bfloat16, the incoming gradient and the product are rounded by
  // at most 2^-8 each.
  std::vector<Precision> precisions() const { return {{at::kFloat, 1.2e-7}, {at::kBFloat16, 1.0 / 128}}; }
};

inline std::vector<DropoutCase> dropout_cases() {
  std::vector<DropoutCase> all;
  for (const std::int64_t n : {1, 15, 16, 17, 1031, 40009}) {
    for (const bool relu : {false, true}) {
      for (const Layout layout : {Layout::dense, Layout::swapped, Layout::gaps}) {
        all.push_back({n, relu, layout});
      }
    }
  }
  return all;
}

}  // namespace headroom::ops
