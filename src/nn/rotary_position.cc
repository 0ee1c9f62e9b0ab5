// Rotary positions: pairs of channels turn by an angle that grows with the position (RoPE).
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "angles.h"
#include "headroom/nn/position.h"
#include "headroom/ops/traced.h"

namespace headroom::nn {
namespace {

struct Turns {
  at::Tensor cos, sin;  // [positions, channels / 2]
};

// Of positions [0, n) at least. Every layer of a model turns by the same angles: they are made once in a process, and
// again when a longer sequence comes.
Turns turns(const Rotary& rotary, std::int64_t n, at::ScalarType type, at::Device device) {
  using Key = std::tuple<std::int64_t, double, at::ScalarType, std::string>;
  static std::mutex mutex;
  static auto& known = *new std::map<Key, Turns>;  // outlives the libraries that the tensors need
  const std::lock_guard lock(mutex);
  Turns& found = known[{rotary.channels, rotary.base, type, device.str()}];
  if (!found.cos.defined() || found.cos.size(0) < n) {
    constexpr std::int64_t kFirstRoom = 512;
    const std::int64_t room = found.cos.defined() ? std::max(n, 2 * found.cos.size(0)) : std::max(n, kFirstRoom);
    const c10::InferenceMode usable_in_training(false);
    const at::Tensor angle = angles(0, room, rotary.channels / 2, rotary.channels, rotary.base);
    found = {angle.cos().to(device, type), angle.sin().to(device, type)};
  }
  return found;
}

// Of the positions of x [B, H, n, e], made anew where it is traced: what is known belongs to another world.
Turns turns_for(const Rotary& rotary, const at::Tensor& x, const c10::SymInt& first, at::ScalarType type) {
  const c10::SymInt n = x.sym_size(2);
  if (!ops::has_numbers(x)) {
    const at::Tensor angle = angles(first, n, rotary.channels / 2, rotary.channels, rotary.base);
    return {angle.cos().to(x.device(), type), angle.sin().to(x.device(), type)};
  }
  const std::int64_t begin = first.expect_int(), count = n.expect_int();
  const Turns all = turns(rotary, begin + count, type, x.device());
  return {all.cos.narrow(0, begin, count), all.sin.narrow(0, begin, count)};
}

class RotaryPosition : public Position {
 public:
  explicit RotaryPosition(const config::AttentionOptions& o) : rotary_{o.rope_channels(), o.rope_base} {}
  std::optional<Rotary> rotary() const override { return rotary_; }
  void add_to(ops::AttentionInputs&, AttentionCache*, const Context&) const override {}

 private:
  Rotary rotary_;
};

const Factory<MakePosition> kRotaryPosition("rope",
                                            [](const config::AttentionOptions& options, const LayerInit&,
                                               const Builder&) -> std::unique_ptr<Position> {
                                              return std::make_unique<RotaryPosition>(options);
                                            });

}  // namespace

at::Tensor Rotary::operator()(const at::Tensor& x, const c10::SymInt& first) const {
  const std::int64_t half = channels / 2, rest = x.sym_size(3).guard_int(__FILE__, __LINE__) - channels;
  const at::ScalarType type = x.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const auto [cos, sin] = turns_for(*this, x, first, wide);
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  std::vector<at::Tensor> pieces = {(a * cos - b * sin).to(type), (b * cos + a * sin).to(type)};
  if (rest > 0) {
    pieces.push_back(x.narrow(3, channels, rest));
  }
  return at::cat(pieces, 3);
}

}  // namespace headroom::nn
