#include "headroom/nn/position.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "headroom/nn/linear.h"

namespace headroom::nn {
namespace {

// [n, count]: position_i * base^(-2c/width) in float64, for exact tables at any length.
at::Tensor angles(std::int64_t first, std::int64_t n, std::int64_t count, std::int64_t width, double base) {
  const at::TensorOptions wide(at::kDouble);
  const at::Tensor frequency =
      at::pow(at::full({}, base, wide), at::arange(count, wide) * (-2.0 / static_cast<double>(width)));
  return at::arange(first, first + n, wide).unsqueeze(1) * frequency;
}

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

at::Tensor sinusoids(std::int64_t first, std::int64_t n, std::int64_t width, double base, at::TensorOptions options) {
  const at::Tensor angle = angles(first, n, (width + 1) / 2, width, base);
  return at::stack({angle.sin(), angle.cos()}, 2).view({n, -1}).narrow(1, 0, width).to(options);
}

RelativePosition::RelativePosition(const config::AttentionOptions& o, std::int64_t d_model, std::int64_t n_layers,
                                   const Builder& build)
    : options_(o), d_model_(d_model) {
  const double std = std::sqrt(2.0 / static_cast<double>(n_layers * d_model));
  const bool routed = o.projection == config::Projection::routed_heads;
  const std::vector<std::int64_t> shape =
      routed ? std::vector<std::int64_t>{d_model, o.d_head} : std::vector<std::int64_t>{d_model, o.n_heads, o.d_head};
  w_pos_ = o.projection == config::Projection::experts || routed ? build.normal("w_pos", shape, std)
                                                                 : build.truncated_normal("w_pos", shape, std);
  if (o.position_bias) {
    u_ = build.constant("u", {routed ? 1 : o.n_heads, o.d_head}, 0.0);
    v_ = build.constant("v", {routed ? 1 : o.n_heads, o.d_head}, 0.0);
  }
}

// Row c of n is p(delta) W_pos for delta = c - (n_keys - 1): [H or 1, n, e].
at::Tensor RelativePosition::offsets(std::int64_t n_keys, std::int64_t n, const Context& context) const {
  const at::Tensor p = sinusoids(1 - n_keys, n, d_model_, options_.rope_base, w_pos_.options());
  return linear(p, w_pos_, {}, context).view({n, -1, options_.d_head}).transpose(0, 1);
}

void RelativePosition::add_to(ops::AttentionInputs& in, AttentionCache* cache, const Context& context) const {
  const std::int64_t n_keys = in.k.size(2), n = in.mask.causal ? n_keys : n_keys + in.q.size(2) - 1;
  if (cache == nullptr) {
    in.r = offsets(n_keys, n, context);
  } else {
    // Offsets of a causal layer end at 0: those of fewer keys are the last of those of many.
    at::Tensor& known = cache->offsets();
    if (!known.defined() || known.size(1) < n) {
      const std::int64_t most = std::max(n, cache->capacity());
      known = offsets(most, most, context);
    }
    in.r = known.narrow(1, known.size(1) - n, n);
  }
  in.r = in.r->expand({in.q.size(1), -1, -1});
  in.q_position = in.q;
  if (u_.defined()) {
    in.q_position = in.q + to_compute(v_, context).unsqueeze(1);
    in.q = in.q + to_compute(u_, context).unsqueeze(1);
  }
}

}  // namespace headroom::nn
