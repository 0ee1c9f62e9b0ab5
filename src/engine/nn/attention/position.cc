// Positions outside the layer: vectors added to the embeddings, or none.
#include "headroom/nn/position.h"

#include "position_table.h"

namespace headroom::nn {
namespace {

class OutsidePosition : public Position {
 public:
  std::optional<Rotary> rotary() const override { return std::nullopt; }
  bool orders_keys() const override { return false; }
  void add_to(ops::AttentionInputs&, const at::Tensor&, AttentionCache*, const Context&) const override {}
};

std::unique_ptr<Position> make_outside_position(const config::AttentionOptions&, const LayerInit&, const Builder&) {
  return std::make_unique<OutsidePosition>();
}

const Factory<MakePosition> kNoPosition("none", make_outside_position);
const Factory<MakePosition> kLearnedPosition("learned", make_outside_position);
const Factory<MakePosition> kSinusoidalPosition("sinusoidal", make_outside_position);

}  // namespace

at::Tensor sinusoids(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base,
                     at::TensorOptions options) {
  if (options.device().is_meta()) {
    return at::empty_symint({n, width}, options);  // only the shape: the table may be larger than memory
  }
  const at::Tensor angle = angles(first, n, (width + 1) / 2, width, base);
  return at::stack({angle.sin(), angle.cos()}, 2).flatten(1).narrow(1, 0, width).to(options);
}

}  // namespace headroom::nn
