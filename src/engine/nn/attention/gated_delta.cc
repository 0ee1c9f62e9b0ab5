// Gated DeltaNet (Yang et al. 2024; as in Qwen3-Next). With q, k, v the projections of a token x_t, SC a short
// convolution over the last c tokens with SiLU, each value head computes
//   q_t = n(SC(q)_t) / sqrt(e),  k_t = n(SC(k)_t),  v_t = SC(v)_t,  n(a) = a / sqrt(|a|^2 + 1e-6)
//   beta_t = sigmoid(x_t w_beta),  g_t = -exp(a_log) softplus(x_t w_decay + dt_bias)
//   S_t = exp(g_t) S_{t-1} + k_t u_t^T,  u_t = beta_t (v_t - exp(g_t) S_{t-1}^T k_t),  o_t = S_t^T q_t
//   o_t <- RMS(o_t) o_norm silu(x_t W_z)
// A padding token is treated as x_t = 0. Decoding stores S and the last c - 1 inputs of the convolution.
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"
#include "headroom/ops/gated_delta.h"

namespace headroom::nn {
namespace {

static_assert(config::kDeltaChunk == ops::kDeltaChunk);

// Letters as in attention_parts.h, except G: query and key heads; c taps of the convolution.
class GatedDeltaScore : public Score {
 public:
  // Parameters "conv_q", "conv_k" [G, e, c], "conv_v" [H, w, c]; "w_beta", "w_decay" [d, H]; "a_log", "dt_bias" [H];
  // "w_z" [d, H, w]; "o_norm" [w].
  GatedDeltaScore(const config::AttentionOptions& o, const ScorePlace& place, const Builder& build)
      : taps_(o.of<config::GatedDeltaOptions>().delta_conv_width),
        per_head_(1.0 / std::sqrt(static_cast<double>(o.d_head))),
        epsilon_(o.qk_norm_epsilon) {
    const auto convolution = [&](char which) {
      return build.random(fmt::format("conv_{}", which),
                          {o.score->projected_heads(o, which), o.projected_width(which), taps_},
                          Distribution::uniform(1.0 / std::sqrt(static_cast<double>(taps_))));
    };
    conv_q_ = convolution('q');
    conv_k_ = convolution('k');
    conv_v_ = convolution('v');
    const std::int64_t d = place.init.d_model, h = o.n_heads, w = o.value_width();
    const auto matrix = [&](const char* name, const std::vector<std::int64_t>& shape, std::int64_t out) {
      return build.for_matmul().matrix(name, shape, Distribution::truncated_normal(place.init.scaled(d)),
                                       {.in = d, .out = out});
    };
    w_beta_ = matrix("w_beta", {d, h}, h);
    w_decay_ = matrix("w_decay", {d, h}, h);
    a_log_ = build.custom("a_log", {h}, [&] { return (build.draw({h}, Distribution::uniform(7.995)) + 8.005).log(); });
    dt_bias_ = build.constant("dt_bias", {h}, 1.0);
    w_z_ = matrix("w_z", {d, h, w}, h * w);
    o_norm_ = build.constant("o_norm", {w}, 1.0);
  }

  // Adds beta and g of each token to the keys, [B, H, T, 2].
  void prepare(Heads& heads, const ScoreTokens& tokens, const Context& context) const override {
    const at::Tensor x = masked(tokens.x, tokens, /*token_axis=*/1);
    const at::Tensor q = convolve(heads.q, conv_q_, 0, tokens, context);
    const at::Tensor k = convolve(heads.keys[0], conv_k_, 1, tokens, context);
    heads.v = convolve(heads.v, conv_v_, 2, tokens, context);
    heads.q = normalised(q) * per_head_;
    const at::Tensor beta = wide(linear(x, w_beta_, {}, context)), decay = wide(linear(x, w_decay_, {}, context));
    const at::Tensor rates = by_rows(x, context, [&](const auto& part) {
      const at::Tensor time = with_dense_gradient(
          ops::elementwise(part(decay) + dt_bias_, [](const at::Tensor& t) { return at::softplus(t); }));
      const at::Tensor rate = ops::sigmoid(part(beta));
      return at::stack({rate, time * -a_log_.exp()}, 3);
    });
    heads.keys = {normalised(k), rates.transpose(1, 2)};
  }

  at::Tensor operator()(ops::AttentionInputs in, const ScoreCall& call, const Context& context) const override {
    const at::Tensor& rates = call.more_keys[0];
    ops::GatedDeltaInputs delta{
        .q = in.q, .k = in.k, .v = in.v, .beta = rates.select(3, 0), .log_decay = rates.select(3, 1), .state = {}};
    if (call.state == nullptr) {
      context.show("probs", [&] { return weights(delta); });
      return ops::gated_delta(delta, context.implementation).o;
    }
    std::vector<at::Tensor>& state = *call.state;
    if (state.size() > kStateTensors - 1) {
      delta.state = state.back();
      state.pop_back();
    }
    ops::GatedDeltaResults results = ops::gated_delta(delta, context.implementation);
    state.push_back(std::move(results.state));
    return results.o;
  }

  at::Tensor gate(const at::Tensor& o, const at::Tensor& x, const Context& context) const override {
    const at::Tensor z = wide(linear(x, w_z_, {}, context)), sums = wide(o);
    const at::Tensor silu = by_rows(z, context, [&](const auto& part) {
      return ops::elementwise(part(z), [](const at::Tensor& t) { return at::silu(t); });
    });
    const at::Tensor by_head = silu.unflatten_symint(2, {-1, o.sym_size(3)}).transpose(1, 2);
    const at::Tensor inverse = inverse_root(sums.square().mean(-1, /*keepdim=*/true) + epsilon_);
    return (inverse * o_norm_ * by_head).to(o.scalar_type());
  }

 private:
  static constexpr std::size_t kStateTensors = 4;  // the last inputs of the convolutions of q, k and v; S

  static at::Tensor wide(const at::Tensor& t) { return t.scalar_type() == at::kDouble ? t : t.to(at::kFloat); }

  // Sets padding tokens to 0.
  static at::Tensor masked(const at::Tensor& t, const ScoreTokens& tokens, std::int64_t token_axis) {
    if (!tokens.valid) {
      return t;
    }
    const at::Tensor valid = tokens.valid->to(t.scalar_type());
    return t * (token_axis == 1 ? valid.unsqueeze(2) : valid.unsqueeze(1).unsqueeze(3));
  }

  // Convolves x [B, *, T, *] and stores its last tokens in tensor `place` of the caches' states.
  at::Tensor convolve(const at::Tensor& x, const at::Tensor& w, std::size_t place, const ScoreTokens& tokens,
                      const Context& context) const {
    const at::Tensor inputs = wide(masked(x, tokens, /*token_axis=*/2));
    if (tokens.caches.empty()) {
      return ops::short_convolution({inputs, w, {}}, context.implementation);
    }
    std::vector<at::Tensor> past;
    for (AttentionCache* cache : tokens.caches) {
      const std::vector<at::Tensor>& state = cache->state();
      past.push_back(place < state.size() ? state[place]
                                          : at::zeros({1, x.size(1), taps_ - 1, x.size(3)}, inputs.options()));
    }
    const at::Tensor before = past.size() == 1 ? past[0] : at::cat(past), all = at::cat({before, inputs}, 2);
    const at::Tensor last = all.narrow(2, all.size(2) - (taps_ - 1), taps_ - 1);
    for (std::size_t row = 0; row < tokens.caches.size(); ++row) {
      std::vector<at::Tensor>& state = tokens.caches[row]->state();
      state.resize(std::max(state.size(), place + 1));
      state[place] = last.narrow(0, static_cast<std::int64_t>(row), 1).clone();
    }
    return ops::short_convolution({inputs, w, before}, context.implementation);
  }

  static at::Tensor normalised(const at::Tensor& t) {
    return t * inverse_root(t.square().sum(-1, /*keepdim=*/true) + 1e-6);
  }
  static at::Tensor inverse_root(const at::Tensor& t) {
    return ops::elementwise(t, [](const at::Tensor& some) { return some.rsqrt(); });
  }

  // Returns the weights [B, H, T, T] of the values, for observers: o = P (I + A)^-1 diag(beta) v with the matrices of
  // ops/gated_delta, all tokens in one chunk. They may be negative.
  static at::Tensor weights(const ops::GatedDeltaInputs& in) {
    const std::int64_t heads = in.v.size(1) / in.k.size(1), n = in.v.size(2);
    const at::Tensor q = in.q.repeat_interleave(heads, 1), k = in.k.repeat_interleave(heads, 1);
    const at::Tensor total = in.log_decay.cumsum(2), later = at::ones({n, n}, total.options().dtype(at::kBool)).triu(1);
    const at::Tensor decay = (total.unsqueeze(3) - total.unsqueeze(2)).masked_fill(later, -INFINITY).exp();
    const at::Tensor beta = in.beta.unsqueeze(3), keys = k.transpose(2, 3);
    const at::Tensor written = at::linalg_solve_triangular(beta * k.matmul(keys) * decay, in.beta.diag_embed(),
                                                           /*upper=*/false, /*left=*/true, /*unitriangular=*/true);
    return (q.matmul(keys) * decay).matmul(written);
  }

  std::int64_t taps_;
  double per_head_, epsilon_;  // 1/sqrt(e)
  at::Tensor conv_q_, conv_k_, conv_v_, w_beta_, w_decay_, a_log_, dt_bias_, w_z_, o_norm_;
};

const Factory<MakeScore> kGatedDeltaScore("gated_delta", make_part<Score, GatedDeltaScore>);

}  // namespace
}  // namespace headroom::nn
