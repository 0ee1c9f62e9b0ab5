// Projections of low rank: latent heads, and below them factored heads.
//
// Multi-head latent attention (DeepSeek-V2, section 2.1; V3's released code): with x_j a token of the source,
//   c_j = RMS(x_j W_down) g,   k_j^h = (R_j x_j W_rotary, c_j W_K^h),   v_j^h = c_j W_V^h
// R_j rotates by position; the rotated key is shared by all heads. Queries are projected from x_i or from RMS(x_i
// W_q_down) g_q, and their first channels are rotated. The cache holds only c_j and the rotated key. For few queries
// the key and value projections are absorbed: with q = (q_R, q_N),
//   q_i . k_j = (q_R, q_N (W_K^h)^T) . (R_j x_j W_rotary, c_j),   sum_j p_ij v_j^h = (sum_j p_ij c_j) W_V^h.
// Grouped latent attention (Zadouri et al. 2025, "Hardware-Efficient Attention for Fast Decoding"): c_j is split into
// latent_groups parts, each normalised separately and read by H / latent_groups neighbouring heads.
#include <cmath>

#include "engine/nn/linear.h"
#include "engine/ops/many_rows.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

// Letters as in attention_parts.h; r kv_rank, g latent_groups, q q_rank, p rotated channels, n = e - p other channels.
class LatentHeads : public Projection {
 public:
  // Parameters "w_q" [d or q, H, e], with q_rank "w_q_down" [d, q] and "q_down_norm" [q]; "w_kv_down" [d, r], "kv_norm"
  // [r], "w_k_rotary" [d, p], "w_k" [r/g, H, n], "w_v" [r/g, H, w], "w_o" [H, w, d].
  LatentHeads(const config::AttentionOptions& o, const LayerInit& init, const Builder& build)
      : heads_(o.n_heads),
        rotary_(o.projection->rotary_channels(o)),
        rest_(o.d_head - rotary_),
        width_(o.value_width()),
        rank_(o.of<config::LatentOptions>().kv_rank),
        groups_(o.of<config::LatentOptions>().latent_groups),
        epsilon_(o.qk_norm_epsilon) {
    const std::int64_t d = init.d_model, e = o.d_head, q = o.of<config::LatentOptions>().q_rank;
    const Builder hidden = build.for_hidden({});
    const auto matrix = [&](const Builder& by, const char* name, const std::vector<std::int64_t>& shape,
                            std::int64_t in, std::int64_t out) {
      return by.matrix(name, shape, Distribution::truncated_normal(init.scaled(in)), {.in = in, .out = out});
    };
    if (q > 0) {
      w_q_down_ = matrix(hidden, "w_q_down", {d, q}, d, q);
      q_down_norm_ = build.constant("q_down_norm", {q}, 1.0);
    }
    const std::int64_t q_in = q > 0 ? q : d;
    w_q_ = matrix(hidden, "w_q", {q_in, heads_, e}, q_in, heads_ * e);
    w_kv_down_ = matrix(hidden, "w_kv_down", {d, rank_}, d, rank_);
    kv_norm_ = build.constant("kv_norm", {rank_}, 1.0);
    w_k_rotary_ = matrix(hidden, "w_k_rotary", {d, rotary_}, d, rotary_);
    const std::int64_t read = rank_ / groups_;  // channels that a head reads
    w_k_ = matrix(hidden, "w_k", {read, heads_, rest_}, read, heads_ / groups_ * rest_);
    w_v_ = matrix(hidden, "w_v", {read, heads_, width_}, read, heads_ / groups_ * width_);
    w_o_ = build.for_hidden({.rows = 2})
               .matrix("w_o", {heads_, width_, d}, Distribution::truncated_normal(init.scaled(heads_ * width_)),
                       {.in = heads_ * width_, .out = d, .into_stream = true});
  }

  // The keys are the shared key (rotated by the layer) and the latent, [B, 1, S, p + r].
  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads;
    if (input.x.defined()) {
      const at::Tensor x =
          w_q_down_.defined() ? normalised(linear(input.x, w_q_down_, {}, context), q_down_norm_, context) : input.x;
      heads.q = by_head(linear(x, w_q_, {}, context), heads_);
    }
    if (!input.source.defined()) {
      return heads;
    }
    if (!input.source_value.is_same(input.source)) {
      fail("attention: source_value must be source with projection = \"latent\", whose keys and values share a latent");
    }
    const at::Tensor latent = normalised_groups(linear(input.source, w_kv_down_, {}, context), context);
    heads.keys = {at::cat({linear(input.source, w_k_rotary_, {}, context), latent}, 2).unsqueeze(1)};
    return heads;
  }

  void expand(Heads& heads, bool decoding, const Context& context) const override {
    const at::Tensor cached = heads.keys[0], latent = cached.narrow(3, rotary_, rank_);
    context.show("rotary", [&] { return cached.narrow(3, 0, rotary_).squeeze(1); });
    context.show("latent", [&] { return latent.squeeze(1); });
    if (decoding && !ops::ManyRows::active() && absorbing_is_cheaper(heads.q.size(2), cached.size(2))) {
      const at::Tensor rest = times_each(heads.q.narrow(3, rotary_, rest_), w_k_.permute({1, 2, 0}), context);
      heads.q = at::cat({heads.q.narrow(3, 0, rotary_), rest}, 3);
      heads.v = latent;
      heads.absorbed = true;
      if (groups_ > 1) {
        heads.v = by_head(latent.squeeze(1), groups_);
        heads.keys = {at::cat({cached.narrow(3, 0, rotary_).expand({-1, groups_, -1, -1}), heads.v}, 3)};
      }
      return;
    }
    const at::Tensor tokens = latent.squeeze(1), rotary = cached.narrow(3, 0, rotary_);
    const at::Tensor rest = read_latents(tokens, w_k_, context);
    heads.keys = {at::cat({rotary.expand_symint({-1, heads_, -1, -1}), rest}, 3)};
    heads.v = read_latents(tokens, w_v_, context);
    context.show("value", [&] { return heads.v.transpose(1, 2); });
  }

  bool expands() const override { return true; }

  at::Tensor results(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    return heads.absorbed ? times_each(o, w_v_.transpose(0, 1), context) : o;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& /*heads*/, const Context& context) const override {
    return linear(o.transpose(1, 2).flatten(2), w_o_, {}, context, /*in_axes=*/2);
  }

 private:
  at::Tensor normalised(const at::Tensor& x, const at::Tensor& gain, const Context& context) const {
    return at::rms_norm(x, gain.sizes(), to_compute(gain, context), epsilon_);
  }

  // Normalises each group of the latents [B, S, r].
  at::Tensor normalised_groups(const at::Tensor& latents, const Context& context) const {
    if (groups_ == 1) {
      return normalised(latents, kv_norm_, context);
    }
    const at::Tensor grouped = latents.unflatten(2, {groups_, -1});
    const at::Tensor gain = to_compute(kv_norm_, context).view({groups_, -1});
    return (at::rms_norm(grouped, {rank_ / groups_}, {}, epsilon_) * gain).flatten(2);
  }

  // Multiplies latents [B, S, r] by w [r/g, H, c]: [B, H, S, c].
  at::Tensor read_latents(const at::Tensor& latents, const at::Tensor& w, const Context& context) const {
    if (groups_ == 1) {
      return by_head(linear(latents, w, {}, context), heads_);
    }
    const std::int64_t read = rank_ / groups_, heads = heads_ / groups_;
    std::vector<at::Tensor> parts;
    for (std::int64_t group = 0; group < groups_; ++group) {
      parts.push_back(by_head(
          linear(latents.narrow(2, group * read, read), w.narrow(1, group * heads, heads), {}, context), heads));
    }
    return at::cat(parts, 1);
  }

  // Reshapes [B, n, heads * c] to [B, heads, n, c].
  static at::Tensor by_head(const at::Tensor& x, std::int64_t heads) {
    return x.unflatten(2, {heads, -1}).transpose(1, 2);
  }

  // Multiplies each head's rows [B, H, T, i] by its matrix [H, i, j].
  static at::Tensor times_each(const at::Tensor& rows, const at::Tensor& matrices, const Context& context) {
    return to_compute(rows, context).matmul(to_compute(matrices, context));
  }

  // Returns whether T queries over S tokens cost fewer multiply-accumulates on the latents than with projected keys and
  // values. Per head, with r/g channels of the latent: T r (n + w) + T S (2 r + p) against S r (n + w) + T S (n + p +
  // w).
  bool absorbing_is_cheaper(std::int64_t t, std::int64_t s) const {
    const std::int64_t read = rank_ / groups_, projecting = read * (rest_ + width_);
    return t * projecting + t * s * (2 * read + rotary_) <= s * projecting + t * s * (rest_ + rotary_ + width_);
  }

  std::int64_t heads_, rotary_, rest_, width_, rank_, groups_;
  double epsilon_;
  at::Tensor w_q_down_, q_down_norm_, w_q_, w_kv_down_, kv_norm_, w_k_rotary_, w_k_, w_v_, w_o_;
};

const Factory<MakeProjection> kLatentHeads("latent", make_part<Projection, LatentHeads>);

// Tensor product attention (Zhang et al. 2025, "Tensor Product Attention Is All You Need"): with x_j a token of the
// source and R = kv_rank,
//   k_j^h = 1/R sum_r (x_j A_k)[h, r] R_j (x_j B_k)[r],   v_j^h = 1/R sum_r (x_j A_v)[h, r] (x_j B_v)[r]
// R_j rotates by position. Queries have factors of rank q_rank or a single matrix, and are rotated as well. The cache
// holds the factors of keys (rotated) and values.

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
