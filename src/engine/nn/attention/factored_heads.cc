// Tensor product attention (Zhang et al. 2025, "Tensor Product Attention Is All You Need"): with x_j a token of the
// source and R = kv_rank,
//   k_j^h = 1/R sum_r (x_j A_k)[h, r] R_j (x_j B_k)[r],   v_j^h = 1/R sum_r (x_j A_v)[h, r] (x_j B_v)[r]
// R_j rotates by position. Queries have factors of rank q_rank or a single matrix, and are rotated as well. The cache
// holds the factors of keys (rotated) and values.
#include <cmath>

#include "engine/nn/linear.h"
#include "headroom/config/attention/projection_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

// Letters as in attention_parts.h; R the rank of the factors.
class FactoredHeads : public Projection {
 public:
  // Parameters "k.a", "v.a" [d, H, R], "k.b", "v.b" [d, R, e] and "w_o" [H, e, d]; "q.a" and "q.b" with q_rank for R,
  // or "w_q" [d, H, e] if q_rank is 0.
  FactoredHeads(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : heads_(o.n_heads), width_(o.d_head) {
    const std::int64_t d = init.d_model, q_rank = o.of<config::LatentOptions>().q_rank,
                       rank = o.of<config::LatentOptions>().kv_rank;
    if (q_rank > 0) {
      q_ = factors("q", q_rank, d, build);
    } else {
      w_q_ = build.for_hidden({}).matrix("w_q", {d, heads_, width_}, Distribution::truncated_normal(init.scaled(d)),
                                         {.in = d, .out = heads_ * width_, .gain = kQkvGain});
    }
    k_ = factors("k", rank, d, build);
    v_ = factors("v", rank, d, build);
    w_o_ = build.for_hidden({.rows = 2})
               .matrix("w_o", {heads_, width_, d}, Distribution::uniform(0.0),
                       {.in = heads_ * width_, .out = d, .into_stream = true});
  }

  // The key holds all factors of a token, [B, R, S, 2e + 2H], in this order: B_k x (rotated by the layer), B_v x, A_k
  // x, A_v x.
  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads;
    if (input.x.defined()) {
      heads.q = queries(input.x, context);
    }
    if (input.source.defined()) {
      const at::Tensor &source = input.source, &of_values = input.source_value;
      heads.keys = {at::cat({by_rank(linear(source, k_.b, {}, context), k_.rank, width_).transpose(1, 2),
                             by_rank(linear(of_values, v_.b, {}, context), v_.rank, width_).transpose(1, 2),
                             by_rank(linear(source, k_.a, {}, context), heads_, k_.rank).permute({0, 3, 1, 2}),
                             by_rank(linear(of_values, v_.a, {}, context), heads_, v_.rank).permute({0, 3, 1, 2})},
                            3)};
    }
    return heads;
  }

  void expand(Heads& heads, bool /*decoding*/, const Context& context) const override {
    const at::Tensor factors = heads.keys[0].transpose(1, 2);  // [B, S, R, 2e + 2H]
    const at::Tensor k = product(factors.narrow(3, 2 * width_, heads_).transpose(2, 3), factors.narrow(3, 0, width_));
    const at::Tensor v =
        product(factors.narrow(3, 2 * width_ + heads_, heads_).transpose(2, 3), factors.narrow(3, width_, width_));
    context.show("key", [&] { return k; });
    context.show("value", [&] { return v; });
    heads.keys = {k.transpose(1, 2)};
    heads.v = v.transpose(1, 2);
  }

  bool expands() const override { return true; }

  at::Tensor combine(const at::Tensor& o, const Heads& /*heads*/, const Context& context) const override {
    return linear(o.transpose(1, 2).flatten(2), w_o_, {}, context, /*in_axes=*/2);
  }

 private:
  struct Factors {
    at::Tensor a, b;  // [d, H, R], [d, R, e]
    std::int64_t rank = 0;
  };

  // The paper's initialisation: Xavier-uniform, with fans as if the last axis were a convolution's kernel.
  Factors factors(std::string_view name, std::int64_t rank, std::int64_t d, const Builder& build) const {
    const auto matrix = [&](const char* which, std::int64_t middle, std::int64_t last) {
      const double bound = std::sqrt(6.0 / static_cast<double>(last * (d + middle)));
      return build.in(name).for_hidden({}).matrix(which, {d, middle, last}, Distribution::uniform(bound),
                                                  {.in = d, .out = middle * last});
    };
    return {.a = matrix("a", heads_, rank), .b = matrix("b", rank, width_), .rank = rank};
  }

  at::Tensor queries(const at::Tensor& x, const Context& context) const {
    if (w_q_.defined()) {
      return by_rank(linear(x, w_q_, {}, context), heads_, width_).transpose(1, 2);
    }
    const at::Tensor a = by_rank(linear(x, q_.a, {}, context), heads_, q_.rank),
                     b = by_rank(linear(x, q_.b, {}, context), q_.rank, width_);
    return by_rows(a, context, [&](const auto& part) { return product(part(a), part(b)); }).transpose(1, 2);
  }

  // Returns the mean over the ranks, [B, n, H, R] x [B, n, R, e] to [B, n, H, e].
  static at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
    return (a / a.sym_size(3).guard_int(__FILE__, __LINE__)).matmul(b);
  }

  // Reshapes [B, n, i * j] to [B, n, i, j].
  static at::Tensor by_rank(const at::Tensor& x, std::int64_t i, std::int64_t j) {
    return x.view_symint({x.sym_size(0), x.sym_size(1), i, j});
  }

  std::int64_t heads_, width_;
  Factors q_, k_, v_;
  at::Tensor w_q_, w_o_;  // w_q_ is undefined if queries have factors
};

const Factory<MakeProjection> kFactoredHeads("factored", make_part<Projection, FactoredHeads>);

}  // namespace
}  // namespace headroom::nn
