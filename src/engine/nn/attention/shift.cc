#include "shift.h"

namespace headroom::nn {

KeyShift::KeyShift(const config::AttentionOptions& o, const Builder& build) {
  if (o.keys != config::Keys::shifted) {
    return;
  }
  const std::int64_t shape[] = {o.n_mixtures, o.computed_kv_heads(), o.d_head};
  shift_ = build.made("shift", shape, [&] {
    at::Tensor start = build.draw(shape, Start::normal(1.0)).mul_(o.shift_std);
    start.select(0, 0).zero_();
    return start;
  });
}

std::optional<at::Tensor> KeyShift::of_keys(const c10::SymInt& n_keys, std::int64_t first_position,
                                            const std::optional<Rotary>& rotary) const {
  if (!shift_.defined()) {
    return std::nullopt;
  }
  const at::Tensor shift = shift_.unsqueeze(2);  // [R, G, 1, e]
  // A rotation is linear: turning the shifted key is turning key and shift.
  return rotary ? (*rotary)(shift.expand_symint({-1, -1, n_keys, -1}), first_position) : shift;
}

}  // namespace headroom::nn
