// Grouped-tied attention (Zadouri et al. 2025, "Hardware-Efficient Attention for Fast Decoding"): with x_j a token of
// the source and g the group of head h,
//   v_j^g = x_j W_v^g,   k_j^g = (R_j x_j W_k_rotary, first half of v_j^g)
// R_j rotates by position; the rotated half is shared by all groups. The first half of a query's channels is rotated.
// The cache holds the values and the shared half of the keys.
#include "engine/nn/linear.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

class TiedHeads : public Projection {
 public:
  // Parameters "w_q" [d, H, e], "w_k_rotary" [d, e/2], "w_v" [d, G, e], "w_o" [H, e, d]; with bias also "b_q" [H, e],
  // "b_k_rotary" [e/2], "b_v" [G, e], "b_o" [d].
  TiedHeads(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : heads_(o.n_heads), groups_(o.kv_heads()), half_(o.d_head / 2) {
    const std::int64_t d = init.d_model, e = o.d_head;
    const auto input = [&](const char* name, const std::vector<std::int64_t>& shape, std::int64_t out) {
      return build.for_hidden({}).matrix(name, shape, Distribution::truncated_normal(init.scaled(d)),
                                         {.in = d, .out = out, .gain = kQkvGain});
    };
    w_q_ = input("w_q", {d, heads_, e}, heads_ * e);
    w_k_rotary_ = input("w_k_rotary", {d, half_}, half_);
    w_v_ = input("w_v", {d, groups_, e}, groups_ * e);
    w_o_ = build.for_hidden({.rows = 2})
               .matrix("w_o", {heads_, e, d}, Distribution::truncated_normal(init.scaled(heads_ * e)),
                       {.in = heads_ * e, .out = d, .into_stream = true});
    if (o.bias) {
      b_q_ = build.bias("b_q", {heads_, e}, d);
      b_k_rotary_ = build.bias("b_k_rotary", {half_}, d);
      b_v_ = build.bias("b_v", {groups_, e}, d);
      b_o_ = build.bias("b_o", {d}, heads_ * e);
    }
  }

  // The key is the shared half, [B, 1, S, e/2].
  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads;
    if (input.x.defined()) {
      heads.q = by_head(linear(input.x, w_q_, b_q_, context), heads_);
    }
    if (!input.source.defined()) {
      return heads;
    }
    if (!input.source_value.is_same(input.source)) {
      fail("attention: source_value must be source with projection = \"tied\", whose values are halves of its keys");
    }
    heads.keys = {linear(input.source, w_k_rotary_, b_k_rotary_, context).unsqueeze(1)};
    heads.v = by_head(linear(input.source, w_v_, b_v_, context), groups_);
    return heads;
  }

  void expand(Heads& heads, bool /*decoding*/, const Context& /*context*/) const override {
    const at::Tensor shared = heads.keys[0].expand_symint({-1, groups_, -1, -1});
    heads.keys = {at::cat({shared, heads.v.narrow(3, 0, half_)}, 3)};
  }

  bool expands() const override { return true; }

  at::Tensor combine(const at::Tensor& o, const Heads& /*heads*/, const Context& context) const override {
    return linear(o.transpose(1, 2).flatten(2), w_o_, b_o_, context, /*in_axes=*/2);
  }

 private:
  // Reshapes [B, n, heads * e] to [B, heads, n, e].
  static at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
    return x.unflatten(2, {heads, -1}).transpose(1, 2);
  }

  std::int64_t heads_, groups_, half_;
  at::Tensor w_q_, w_k_rotary_, w_v_, w_o_, b_q_, b_k_rotary_, b_v_, b_o_;
};

const Factory<MakeProjection> kTiedHeads("tied", make_part<Projection, TiedHeads>);

}  // namespace
}  // namespace headroom::nn
