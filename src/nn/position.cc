#include "headroom/nn/position.h"

namespace headroom::nn {
namespace {

// [n, count]: position_i * base^(-2c/width) in float64, for exact tables at any length.
at::Tensor angles(std::int64_t first, std::int64_t n, std::int64_t count, std::int64_t width, double base) {
  const at::TensorOptions wide(at::kDouble);
  const at::Tensor frequency =
      at::pow(at::full({}, base, wide), at::arange(count, wide) * (-2.0 / static_cast<double>(width)));
  return at::arange(first, first + n, wide).unsqueeze(1) * frequency;
}

}  // namespace

at::Tensor Rotary::operator()(const at::Tensor& x, std::int64_t first) const {
  const std::int64_t half = channels / 2, rest = x.size(3) - channels;
  const at::ScalarType type = x.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor angle = angles(first, x.size(2), half, channels, base);
  const at::Tensor cos = angle.cos().to(x.device(), wide), sin = angle.sin().to(x.device(), wide);
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  std::vector<at::Tensor> pieces = {(a * cos - b * sin).to(type), (b * cos + a * sin).to(type)};
  if (rest > 0) {
    pieces.push_back(x.narrow(3, channels, rest));
  }
  return at::cat(pieces, 3);
}

at::Tensor sinusoids(std::int64_t first, std::int64_t n, std::int64_t width, double base, at::TensorOptions options) {
  const at::Tensor angle = angles(first, n, (width + 1) / 2, width, base);
  return at::stack({angle.sin(), angle.cos()}, 2).view({n, -1}).narrow(1, 0, width).to(options);
}

}  // namespace headroom::nn
