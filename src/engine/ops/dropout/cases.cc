#include "cases.h"

#include <fmt/format.h>

#include "headroom/ops/dropout.h"

namespace headroom::ops {

std::vector<DropoutCase> dropout_cases() {
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

std::string DropoutCase::name() const {
  return fmt::format("{}x3{}{}", n, relu ? " relu" : "", name_of(layout));
}

Problem DropoutCase::problem(const Setting& setting) const {
  const DropoutOptions options{.p = 0.3, .seed = 0x123456789ABCDEFULL + static_cast<std::uint64_t>(n), .relu = relu};
  return {{Draw{setting, layout}.activation({n, 3})},
          [options](const std::vector<at::Tensor>& x, Implementation implementation) {
            return dropout(x[0], options, implementation);
          }};
}

// The same elements, multiplied by the same number: roundings of the factor and of the product. In bfloat16, those of
// the gradient that arrives and of the product, at most 2^-8 each.
std::vector<Precision> DropoutCase::precisions() const {
  return {{at::kFloat, 1.2e-7}, {at::kBFloat16, 1.0 / 128}};
}

}  // namespace headroom::ops
