// Transformer-XL's relative positions: (q_i + v) . p(delta) W_pos is added to the scores, and the content term uses the
// queries q_i + u (Dai et al., section 3.3; SwitchHead, section 2.2).

#include "engine/nn/linear.h"
#include "engine/ops/one_pass.h"
#include "engine/ops/shapes.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"
#include "position_table.h"

namespace headroom::nn {
namespace {

at::Tensor make_sinusoids(const c10::SymInt& first, const c10::SymInt& n, const PositionTable& table) {
  return sinusoids(first, n, table.width, table.base, at::kDouble).unsqueeze(0);
}

class RelativePosition : public Position {
 public:
  // Parameters "w_pos" [d, H, e] and, with position_bias, "u" and "v" [H, e]. Routed heads share them: [d, e], [1, e],
  // or with several groups [d, G, e], [G, e].
  RelativePosition(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : d_head_(o.d_head), d_model_(init.d_model), base_(o.of<config::PositionOptions>().rope_base) {
    const double std = init.scaled(init.d_model);
    const std::int64_t d = init.d_model, e = o.d_head, heads = o.projection->position_heads(o);
    const bool shared = !o.projection->has_fixed_heads() && heads == 1;
    w_pos_ =
        build.matrix("w_pos", shared ? std::vector{d, e} : std::vector{d, heads, e},
                     o.projection->starts_truncated() ? Distribution::truncated_normal(std) : Distribution::normal(std),
                     {.in = d, .out = heads * e, .gain = kQkvGain});
    if (o.of<config::PositionOptions>().position_bias) {
      u_ = build.constant("u", {heads, e}, 0.0);
      v_ = build.constant("v", {heads, e}, 0.0);
    }
  }
  std::optional<Rotary> rotary() const override { return std::nullopt; }

  void add_to(ops::AttentionInputs& in, const at::Tensor& /*key_features*/, AttentionCache* cache,
              const Context& context) const override {
    const c10::SymInt n_keys = in.k.sym_size(2), n_offsets = in.mask.causal ? n_keys : n_keys + in.q.sym_size(2) - 1;
    if (cache == nullptr) {
      in.r = offsets(n_keys, n_offsets, context);
    } else {
      // The offsets of a causal layer end at 0, so the offsets for fewer keys are the last rows of those for `capacity`
      // keys. A window exceeds the capacity only when several queries are read at once.
      const std::int64_t n = n_offsets.expect_int(), capacity = cache->capacity();
      at::Tensor& cached = cache->offsets();
      if (n <= capacity && !cached.defined()) {
        cached = offsets(capacity, capacity, context);
      }
      in.r = n <= capacity ? ops::narrowed(cached, 1, capacity - n, n) : offsets(n, n, context);
    }
    const std::int64_t heads = in.q.sym_size(1).guard_int(__FILE__, __LINE__);
    in.r = per_head(*in.r, heads).expand_symint({heads, -1, -1});
    in.q_position = in.q;
    if (u_.defined()) {
      in.q_position = in.q + per_head(to_compute(v_, context), heads).unsqueeze(1);
      in.q = in.q + per_head(to_compute(u_, context), heads).unsqueeze(1);
    }
  }

 private:
  // Repeats the rows of groups of heads; a single row is returned unchanged.
  static at::Tensor per_head(const at::Tensor& t, std::int64_t heads) {
    const std::int64_t groups = t.sym_size(0).guard_int(__FILE__, __LINE__);
    return groups == 1 || groups == heads ? t : t.repeat_interleave(heads / groups, 0);
  }

  // Returns [H or 1, n, e]: row c of n is p(delta) W_pos with delta = c - (n_keys - 1).
  at::Tensor offsets(const c10::SymInt& n_keys, const c10::SymInt& n, const Context& context) const {
    const at::TensorOptions type = w_pos_.options().dtype(context.compute_dtype.value_or(w_pos_.scalar_type()));
    const at::Tensor p = rows_of({make_sinusoids, d_model_, base_}, -n_keys + 1, n, type, !ops::has_values(w_pos_))[0];
    Context not_by_row = context;  // the n rows are offsets, not sequences
    not_by_row.batch_invariant = false;
    const c10::SymInt heads = w_pos_.dim() == 3 ? w_pos_.sym_size(1) : c10::SymInt(1);
    return linear(p, w_pos_, {}, not_by_row).view_symint({n, heads, d_head_}).transpose(0, 1);
  }

  std::int64_t d_head_, d_model_;
  double base_;
  at::Tensor w_pos_, u_, v_;
};

const Factory<MakePosition> kRelativePosition("relative", make_part<Position, RelativePosition>);

}  // namespace
}  // namespace headroom::nn
