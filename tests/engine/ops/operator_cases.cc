#include "operator_cases.h"

#include <limits>

namespace headroom::ops {

at::Tensor in_layout(const at::Tensor& t, Layout layout) {
  const std::int64_t axes = t.dim();
  const auto lying = [&](std::int64_t a, std::int64_t b) { return t.transpose(a, b).contiguous().transpose(a, b); };
  if (layout == Layout::gaps && axes > 0) {
    std::vector<std::int64_t> shape = t.sizes().vec();
    shape.back() += 3 - t.size(-1) % 2;
    const at::Tensor whole = at::full(shape, std::numeric_limits<double>::quiet_NaN(), t.options());
    return whole.narrow(-1, 1, t.size(-1)).copy_(t);
  }
  if (axes < 2 || layout == Layout::dense) {
    return t.contiguous();
  }
  return layout == Layout::swapped ? lying(axes - 2, axes - 1) : lying(axes == 4 ? 1 : 0, axes == 4 ? 2 : 1);
}

std::string name_of(Layout layout) {
  switch (layout) {
    case Layout::dense:
      return "";
    case Layout::swapped:
      return " swapped";
    case Layout::by_token:
      return " by token";
    case Layout::gaps:
      return " with gaps";
  }
  return "";
}

at::Tensor Draw::activation(at::IntArrayRef shape, double size) const {
  return placed(at::randn(shape) * size, setting.type);
}

at::Tensor Draw::parameter(at::IntArrayRef shape, double size) const {
  return placed(at::randn(shape) * size, parameter_type());
}

at::Tensor Draw::placed(const at::Tensor& t, at::ScalarType type) const {
  return in_layout(t.to(type).to(setting.device), layout);
}

}  // namespace headroom::ops
