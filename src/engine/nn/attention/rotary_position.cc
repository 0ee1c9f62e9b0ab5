// Rotary positions: pairs of channels turn by an angle that grows with the position (RoPE).
#include <algorithm>

#include "engine/ops/shapes.h"
#include "headroom/nn/position.h"
#include "position_table.h"

namespace headroom::nn {
namespace {

// Cosines and sines, [2, n, width / 2].
at::Tensor make_turns(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base) {
  const at::Tensor angle = angles(first, n, width / 2, width, base);
  return at::stack({angle.cos(), angle.sin()});
}

class RotaryPosition : public Position {
 public:
  explicit RotaryPosition(const config::AttentionOptions& o) : rotary_{o.rope_channels(), o.rope_base} {}
  std::optional<Rotary> rotary() const override { return rotary_; }
  bool orders_keys() const override { return false; }
  void add_to(ops::AttentionInputs&, const at::Tensor&, AttentionCache*, const Context&) const override {}

 private:
  Rotary rotary_;
};

const Factory<MakePosition> kRotaryPosition("rope",
                                            [](const config::AttentionOptions& options, const LayerInit&,
                                               const Builder&) -> std::unique_ptr<Position> {
                                              return std::make_unique<RotaryPosition>(options);
                                            });

// x [B, H, n, e], cosines and sines [n, channels / 2] or [B, 1, n, channels / 2].
at::Tensor turned(const at::Tensor& x, std::int64_t channels, const at::Tensor& cos, const at::Tensor& sin) {
  const std::int64_t half = channels / 2, rest = x.sym_size(3).guard_int(__FILE__, __LINE__) - channels;
  const at::ScalarType type = x.scalar_type(), wide = cos.scalar_type();
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  std::vector<at::Tensor> pieces = {(a * cos - b * sin).to(type), (b * cos + a * sin).to(type)};
  if (rest > 0) {
    pieces.push_back(x.narrow(3, channels, rest));
  }
  return at::cat(pieces, 3);
}

at::TensorOptions at_least_single(const at::Tensor& x) {
  return x.options().dtype(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
}

}  // namespace

at::Tensor Rotary::operator()(const at::Tensor& x, const c10::SymInt& first) const {
  const at::Tensor turns =
      rows_of({make_turns, channels, base}, first, x.sym_size(2), at_least_single(x), !ops::has_values(x));
  return turned(x, channels, turns[0], turns[1]);
}

at::Tensor Rotary::turn_rows(const at::Tensor& x, at::IntArrayRef first) const {
  const auto [least, most] = std::minmax_element(first.begin(), first.end());
  if (*least == *most) {
    return (*this)(x, *least);
  }
  const std::int64_t n = x.size(2), count = *most - *least + n;
  const at::Tensor all = rows_of({make_turns, channels, base}, *least, count, at_least_single(x), /*traced=*/false);
  std::vector<std::int64_t> places;
  for (const std::int64_t position : first) {
    for (std::int64_t i = 0; i < n; ++i) {
      places.push_back(position - *least + i);
    }
  }
  const at::Tensor turns = all.index_select(1, at::tensor(places, at::kLong).to(all.device()))
                               .view({2, std::ssize(first), 1, n, channels / 2});
  return turned(x, channels, turns[0], turns[1]);
}

}  // namespace headroom::nn
