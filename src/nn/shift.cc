#include "headroom/nn/shift.h"

namespace headroom::nn {

KeyShift::KeyShift(const config::AttentionOptions& o, const Builder& build) {
  if (o.keys != config::Keys::shifted) {
    return;
  }
  at::Tensor start =
      build.draw({o.n_mixtures, o.computed_kv_heads(), o.d_head}, Start::normal(1.0)).mul_(o.shift_deviation);
  start.select(0, 0).zero_();
  shift_ = build.given("shift", start);
}

std::optional<at::Tensor> KeyShift::of_keys(std::int64_t n_keys, std::int64_t first_position,
                                            const std::optional<Rotary>& rotary) const {
  if (!shift_.defined()) {
    return std::nullopt;
  }
  const at::Tensor shift = shift_.unsqueeze(2);  // [R, G, 1, e]
  // A rotation is linear: turning the shifted key is turning key and shift.
  return rotary ? (*rotary)(shift.expand({-1, -1, n_keys, -1}), first_position) : shift;
}

}  // namespace headroom::nn
