// Differential attention: head h has the attention matrices A_2h and A_2h+1, one for each of its two queries, and
//   o_h = (A_2h - lambda A_2h+1) v_g,   g the key/value head of h.
// Version 2 (Microsoft, 2026): both queries share the key head, and lambda = sigmoid(x_i W_lambda)_h of the query's
// token. Version 1 (Ye et al. 2024): each key/value head has one key per matrix and a value of w = 2 e channels, and
//   lambda = exp(lambda_q[0] . lambda_k[0]) - exp(lambda_q[1] . lambda_k[1]) + lambda_0,   lambda_0 = 0.8 - 0.6
//   exp(-0.3 l) in layer l from 0,
//   o_h <- (1 - lambda_0) RMS(o_h) g_norm,   one gain [w] for all heads.
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

class TokenFactors : public Composition {
 public:
  // Parameter "w_lambda" [d, H].
  TokenFactors(const config::AttentionOptions& options, const LayerInit& init, const Builder& build) {
    w_ = build.for_matmul().matrix("w_lambda", {init.d_model, options.n_heads},
                                   Distribution::normal(init.scaled(init.d_model)),
                                   {.in = init.d_model, .out = options.n_heads});
  }

  Maps maps(const at::Tensor& x, const at::Tensor& /*key_factors*/, const Context& context) const override {
    const at::Tensor score = linear(x, w_, {}, context);
    const at::Tensor lambda = by_rows(score, context, [&](const auto& part) { return ops::sigmoid(part(score)); })
                                  .transpose(1, 2)
                                  .unsqueeze(3);
    context.show("lambda", [&] { return lambda; });
    Maps maps;
    maps.difference = lambda;
    return maps;
  }

  bool supports_sequences() const override { return true; }

  at::Tensor results(const at::Tensor& o, const Context& context) const override {
    return context.observe("difference", o);
  }

 private:
  at::Tensor w_;
};

class LayerFactor : public Composition {
 public:
  // Parameters "lambda_q" and "lambda_k" [2, e], "head_norm" [w].
  LayerFactor(const config::AttentionOptions& options, const LayerInit& init, const Builder& build)
      : first_(0.8 - 0.6 * std::exp(-0.3 * static_cast<double>(init.layer))),
        epsilon_(options.of<config::DifferentialOptions>().head_norm_epsilon) {
    q_ = build.random("lambda_q", {2, options.d_head}, Distribution::normal(0.1));
    k_ = build.random("lambda_k", {2, options.d_head}, Distribution::normal(0.1));
    gain_ = build.constant("head_norm", {options.value_width()}, 1.0);
  }

  Maps maps(const at::Tensor& /*x*/, const at::Tensor& /*key_factors*/, const Context& context) const override {
    const at::Tensor terms = (q_ * k_).sum(1).exp();
    const at::Tensor lambda = terms.narrow(0, 0, 1) - terms.narrow(0, 1, 1) + first_;
    context.show("lambda", [&] { return lambda; });
    Maps maps;
    maps.difference = to_compute(lambda, context).view({1, 1, 1, 1});
    return maps;
  }

  at::Tensor results(const at::Tensor& o, const Context& context) const override {
    const at::Tensor u = context.observe("difference", o), gain = to_compute(gain_, context);
    context.show("head_norm", [&] { return (u.square().mean(-1, true) + epsilon_).rsqrt() * gain * (1.0 - first_); });
    return at::rms_norm(u, gain.sizes(), gain, epsilon_) * (1.0 - first_);
  }

 private:
  double first_;  // lambda_0
  double epsilon_;
  at::Tensor q_, k_, gain_;
};

std::unique_ptr<Composition> make_differential(const config::AttentionOptions& options, const LayerInit& init,
                                               const Builder& build) {
  if (options.of<config::DifferentialOptions>().differential_version == 1) {
    return std::make_unique<LayerFactor>(options, init, build);
  }
  return std::make_unique<TokenFactors>(options, init, build);
}

const Factory<MakeComposition> kDifferential("differential", make_differential);

}  // namespace
}  // namespace headroom::nn
