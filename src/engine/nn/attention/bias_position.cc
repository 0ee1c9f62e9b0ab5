// Position schemes that add a bias to the scores: a term of the query's token minus a term of the key's token,
//   s_ij += C_i^h - C_j^h
// alibi (ALiBi; Press et al. 2022):                C_i^h = -m_h i, with a fixed slope m_h
// forgetting (Forgetting Transformer; Lin et al. 2025): C_i^h = sum over l <= i of log f_l^h, with the forget gate
//   f_l^h = sigmoid(x_l w_f^h + b_f^h), or sigmoid(b_f^h) for every token
// A softmax alone would need only the key's term, because the query's term is the same for all keys. The query's term
// matters for sigmoids, sinks, an epsilon in the denominator and composed heads.
#include <bit>
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

at::ScalarType at_least_single(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

class BiasPosition : public Position {
 public:
  std::optional<Rotary> rotary() const override { return std::nullopt; }
  bool supports_sequences() const override { return false; }

 protected:
  // `by_head`: C of the source's tokens, [B or 1, H, S]. Both attention matrices of a differential head share its bias.
  static void add(ops::AttentionInputs& in, const at::Tensor& by_head) {
    const std::int64_t maps =
        in.q.sym_size(1).guard_int(__FILE__, __LINE__) / by_head.sym_size(1).guard_int(__FILE__, __LINE__);
    const at::Tensor sums = maps == 1 ? by_head : by_head.repeat_interleave(maps, 1);
    const c10::SymInt t = in.q.sym_size(2), s = sums.sym_size(2);
    in.query_bias = sums.narrow_symint(2, s - t, t);
    in.key_bias = -sums;
  }
};

class Alibi : public BiasPosition {
 public:
  Alibi(const config::AttentionOptions& options, const LayerInit& /*init*/, const Builder& /*build*/)
      : n_heads_(options.n_heads) {}

  void add_to(ops::AttentionInputs& in, const at::Tensor& /*key_features*/, AttentionCache* cache,
              const Context& context) const override {
    const at::TensorOptions type = in.q.options().dtype(at_least_single(in.q.scalar_type()));
    const at::Tensor m = slopes(type);
    context.show("slopes", [&] { return m; });
    // Positions are counted from the last key, to keep the terms of recent tokens small; while ManyRows is active, from
    // the first key, so that rounding does not depend on later tokens.
    c10::SymInt last = 0;
    if (ops::ManyRows::active()) {
      last = cache != nullptr ? c10::SymInt(cache->first_index() + cache->size()) : in.k.sym_size(2);
    }
    const at::Tensor distance =
        at::arange(at::Scalar(in.k.sym_size(2) - 1 - last), at::Scalar(-1 - last), at::Scalar(-1), type);
    add(in, (m.unsqueeze(1) * distance).unsqueeze(0));
  }

 private:
  // Returns m [H]. With P the largest power of two up to H: 2^(-8 h / P) for h = 1 .. P, then every second slope of 2 P
  // heads, from the first.
  at::Tensor slopes(const at::TensorOptions& type) const {
    const auto p = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n_heads_)));
    const at::TensorOptions wide = type.dtype(at::kDouble);
    const at::Tensor h = at::cat({at::arange(1, p + 1, wide), at::arange(n_heads_ - p, wide) + 0.5});
    return at::exp2(h * (-8.0 / static_cast<double>(p))).to(type);
  }

  std::int64_t n_heads_;
};

class Forgetting : public BiasPosition {
 public:
  // Parameters "w_forget" [d, H] (if gates depend on the tokens) and "b_forget" [H].
  Forgetting(const config::AttentionOptions& o, const LayerInit& init, const Builder& build) {
    const auto& own = o.of<config::PositionOptions>();
    if (own.forget == config::Forget::token) {
      w_ = build.for_matmul().matrix("w_forget", {init.d_model, o.n_heads}, Distribution::normal(0.02),
                                     {.in = init.d_model, .out = o.n_heads});
    }
    b_ = build.custom("b_forget", {o.n_heads},
                      [&] { return initial_bias(own.forget_times, o.n_heads).to(build.options().dtype()); });
  }

  // Returns log f of the tokens, [B, 1, n, H], in at least float32.
  at::Tensor key_features(const at::Tensor& x, const Context& context) const override {
    if (!w_.defined()) {
      return {};
    }
    const at::Tensor score = linear(x, w_, b_, context);
    return by_rows(score, context, [&](const auto& part) { return log_sigmoid(part(score)); }).unsqueeze(1);
  }

  void add_to(ops::AttentionInputs& in, const at::Tensor& key_features, AttentionCache* /*cache*/,
              const Context& context) const override {
    const at::Tensor log_f = w_.defined()
                                 ? key_features.squeeze(1)
                                 : log_sigmoid(b_).expand_symint({in.q.sym_size(0), in.k.sym_size(2), b_.sym_size(0)});
    context.show("log_forget", [&] { return log_f; });
    at::Tensor by_head = log_f.transpose(1, 2);
    if (in.mask.valid_keys) {  // padding does not decay the terms
      by_head = by_head.masked_fill(in.mask.valid_keys->logical_not().unsqueeze(1), 0.0);
    }
    add(in, by_head.cumsum(2));
  }

 private:
  static at::Tensor log_sigmoid(const at::Tensor& x) { return at::log_sigmoid(x.to(at_least_single(x.scalar_type()))); }

  // b_h = -log(expm1(1 / t_h)), so that log f = -1 / t_h, with t_h spread logarithmically between two times.
  static at::Tensor initial_bias(const std::vector<double>& times, std::int64_t n_heads) {
    if (times.empty()) {
      return at::zeros({n_heads}, at::kDouble);
    }
    const at::Tensor t = at::linspace(std::log(times[0]), std::log(times[1]), n_heads, at::kDouble).exp();
    return -(1.0 / t).expm1().log();
  }

  at::Tensor w_, b_;
};

const Factory<MakePosition> kAlibi("alibi", make_part<Position, Alibi>);
const Factory<MakePosition> kForgetting("forgetting", make_part<Position, Forgetting>);

}  // namespace
}  // namespace headroom::nn
