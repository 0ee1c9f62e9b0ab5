// Transformer-XL's relative positions: scores gain (q_i + v) . p(delta) W_pos, and the content term's queries become
// q_i + u (SwitchHead section 2.2).
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/shapes.h"
#include "headroom/config/attention_part.h"
#include "headroom/nn/position.h"
#include "position_table.h"

namespace headroom::nn {
namespace {

// Heads that differ from token to token share one W_pos, u and v.
class RelativePosition : public Position {
 public:
  // Parameters "w_pos" [d, H, e] (shared: [d, e]), and "u", "v" [H, e] (shared: [1, e]) with position_bias.
  RelativePosition(const config::AttentionOptions& options, const LayerInit& init, const Builder& build);
  std::optional<Rotary> rotary() const override { return std::nullopt; }
  void add_to(ops::AttentionInputs& in, const at::Tensor& marks, AttentionCache* cache,
              const Context& context) const override;

 private:
  at::Tensor offsets(const c10::SymInt& n_keys, const c10::SymInt& n, const Context& context) const;

  config::AttentionOptions options_;
  std::int64_t d_model_;
  at::Tensor w_pos_, u_, v_;
};

RelativePosition::RelativePosition(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
    : options_(o), d_model_(init.d_model) {
  const double std = init.scaled(init.d_model);
  const bool shared = !o.projection->has_fixed_heads();
  const std::int64_t d = init.d_model, e = o.d_head;
  const std::vector<std::int64_t> shape =
      shared ? std::vector<std::int64_t>{d, e} : std::vector<std::int64_t>{d, o.n_heads, e};
  const std::int64_t width = shared ? e : o.n_heads * e;
  w_pos_ =
      build.matrix("w_pos", shape, o.projection->starts_truncated() ? Start::truncated_normal(std) : Start::normal(std),
                   {.in = d, .out = width, .gain = kThirdOfAMatrix});
  if (o.position_bias) {
    u_ = build.constant("u", {o.projection->position_heads(o), e}, 0.0);
    v_ = build.constant("v", {o.projection->position_heads(o), e}, 0.0);
  }
}

at::Tensor make_sinusoids(const c10::SymInt& first, const c10::SymInt& n, std::int64_t width, double base) {
  return sinusoids(first, n, width, base, at::kDouble).unsqueeze(0);
}

// Row c of n is p(delta) W_pos for delta = c - (n_keys - 1): [H or 1, n, e].
at::Tensor RelativePosition::offsets(const c10::SymInt& n_keys, const c10::SymInt& n, const Context& context) const {
  const at::TensorOptions type = w_pos_.options().dtype(context.compute_dtype.value_or(w_pos_.scalar_type()));
  const at::Tensor p =
      rows_of({make_sinusoids, d_model_, options_.rope_base}, -n_keys + 1, n, type, !ops::has_values(w_pos_))[0];
  Context all_together = context;  // no rows of the call: the same whoever asks first
  all_together.batch_invariant = false;
  return linear(p, w_pos_, {}, all_together).view_symint({n, -1, options_.d_head}).transpose(0, 1);
}

void RelativePosition::add_to(ops::AttentionInputs& in, const at::Tensor& /*marks*/, AttentionCache* cache,
                              const Context& context) const {
  const c10::SymInt n_keys = in.k.sym_size(2), n_offsets = in.mask.causal ? n_keys : n_keys + in.q.sym_size(2) - 1;
  if (cache == nullptr) {
    in.r = offsets(n_keys, n_offsets, context);
  } else {
    // Offsets of a causal layer end at 0: those of fewer keys are the last of those of many. A window's are as many as
    // its cache has room for, but for the first of several queries.
    const std::int64_t n = n_offsets.expect_int(), kept = cache->capacity();
    at::Tensor& known = cache->offsets();
    if (n <= kept && !known.defined()) {
      known = offsets(kept, kept, context);
    }
    in.r = n <= kept ? known.narrow(1, kept - n, n) : offsets(n, n, context);
  }
  in.r = in.r->expand_symint({in.q.sym_size(1), -1, -1});
  in.q_position = in.q;
  if (u_.defined()) {
    in.q_position = in.q + to_compute(v_, context).unsqueeze(1);
    in.q = in.q + to_compute(u_, context).unsqueeze(1);
  }
}

const Factory<MakePosition> kRelativePosition("relative",
                                              [](const config::AttentionOptions& options, const LayerInit& init,
                                                 const Builder& build) -> std::unique_ptr<Position> {
                                                return std::make_unique<RelativePosition>(options, init, build);
                                              });

}  // namespace
}  // namespace headroom::nn
