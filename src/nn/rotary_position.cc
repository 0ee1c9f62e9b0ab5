// Rotary positions: pairs of channels turn by an angle that grows with the position (RoPE).
#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "angles.h"
#include "headroom/nn/position.h"

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

at::Tensor Rotary::operator()(const at::Tensor& x, std::int64_t first) const {
  const std::int64_t half = channels / 2, rest = x.size(3) - channels;
  const at::ScalarType type = x.scalar_type(), wide = type == at::kDouble ? at::kDouble : at::kFloat;
  const Turns all = turns(*this, first + x.size(2), wide, x.device());
  const at::Tensor cos = all.cos.narrow(0, first, x.size(2)), sin = all.sin.narrow(0, first, x.size(2));
  const at::Tensor a = x.narrow(3, 0, half).to(wide), b = x.narrow(3, half, half).to(wide);
  std::vector<at::Tensor> pieces = {(a * cos - b * sin).to(type), (b * cos + a * sin).to(type)};
  if (rest > 0) {
    pieces.push_back(x.narrow(3, channels, rest));
  }
  return at::cat(pieces, 3);
}

}  // namespace headroom::nn
