#include "headroom/nn/composition.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "headroom/nn/linear.h"

namespace headroom::nn {
namespace {

constexpr double kFactorEpsilon = 1e-6;

bool names(const std::vector<std::string>& list, const char* value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

double glorot(std::int64_t in, std::int64_t out) {
  return std::sqrt(2.0 / static_cast<double>(in + out));
}

// x [C or 1, N, in], w [C, in, out]: [C, N, out].
at::Tensor product_by_group(const at::Tensor& x, const at::Tensor& w, const Context& context) {
  return w.size(0) == 1 ? linear(x[0], w[0], {}, context).unsqueeze(0) : x.matmul(to_compute(w, context));
}

// Letters: B batch, n tokens, d d_model, H heads in C groups of m, R rank, I = 2 R m.
// Dynamic factors of a token x, for each stage and side: f = act(x W_1) W_2 as [2, R, m] a group; u_r = f_0r divided by
// sqrt(mean over the group's heads of f_0r^2 + 1e-6), w_r = f_1r; gate = tanh(x W_g). Without a dynamic part there are
// none, and the fixed map remains.
class HeadMaps : public Composition {
 public:
  // Parameters "pre.q.w1" [C, d, I], "pre.q.w2" [C, I, 2, R, m], "pre.q.wg" [d, H], "pre.wb" [C, m, m], ...: stages pre
  // and post, sides q and k.
  HeadMaps(const config::AttentionOptions& options, bool dynamic, std::int64_t d_model, const Builder& build);

  // F: (2 R H + H) a stage with both low rank and gates.
  at::Tensor key_factors(const at::Tensor& source, const Context& context) const override;
  Maps maps(const at::Tensor& x, const at::Tensor& key_factors, const Context& context) const override;
  at::Tensor key_maps(const at::Tensor& key_factors) const override;

 private:
  struct Side {
    at::Tensor w1, w2, wg;
  };
  struct Stage {
    at::Tensor fixed;
    Side query, key;
  };

  Stage make_stage(bool dynamic, std::int64_t d_model, const Builder& build) const;
  Side make_side(const char* name, std::int64_t d_model, const Builder& build) const;
  at::Tensor factors(const Side& side, const at::Tensor& x, const Context& context) const;  // [B, n, F of the side]
  ops::HeadMapSide map_of(const Side& side, at::Tensor factors) const;
  ops::HeadMap start(const Stage& stage) const;

  config::AttentionOptions options_;
  std::optional<Stage> pre_, post_;
};

HeadMaps::HeadMaps(const config::AttentionOptions& options, bool dynamic, std::int64_t d_model, const Builder& build)
    : options_(options) {
  if (options.composes("pre")) {
    pre_ = make_stage(dynamic, d_model, build.in("pre"));
  }
  if (options.composes("post")) {
    post_ = make_stage(dynamic, d_model, build.in("post"));
  }
}

HeadMaps::Stage HeadMaps::make_stage(bool dynamic, std::int64_t d_model, const Builder& build) const {
  Stage stage;
  const std::int64_t groups = options_.compose_groups, m = options_.n_heads / groups;
  if (!dynamic || options_.compose_static) {
    stage.fixed =
        build.started("wb", {groups, m, m}, Start::normal(0.1 / std::sqrt(static_cast<double>(options_.n_heads))));
  }
  if (dynamic) {
    stage.query = make_side("query", d_model, build.in("q"));
    stage.key = make_side("key", d_model, build.in("k"));
  }
  return stage;
}

HeadMaps::Side HeadMaps::make_side(const char* name, std::int64_t d_model, const Builder& build) const {
  Side side;
  const std::int64_t h = options_.n_heads, rank = options_.compose_rank, groups = options_.compose_groups;
  const std::int64_t m = h / groups, hidden = 2 * rank * m;
  if (names(options_.compose_low_rank, name)) {
    side.w1 = build.for_products().started("w1", {groups, d_model, hidden}, Start::normal(glorot(d_model, hidden)));
    const double spread = std::sqrt(static_cast<double>(2 * h * rank)) * static_cast<double>(h + rank);
    side.w2 = build.for_products().started("w2", {groups, hidden, 2, rank, m}, Start::normal(0.02 / spread));
  }
  if (names(options_.compose_gates, name)) {
    side.wg = build.for_products().started("wg", {d_model, h}, Start::normal(0.05 * glorot(d_model, h)));
  }
  return side;
}

at::Tensor HeadMaps::factors(const Side& side, const at::Tensor& x, const Context& context) const {
  const c10::SymInt b = x.sym_size(0), n = x.sym_size(1);
  const at::Tensor rows = to_compute(x, context).flatten(0, 1);
  std::vector<at::Tensor> parts;
  if (side.w1.defined()) {
    const std::int64_t groups = side.w1.size(0), hidden = side.w1.size(2), rank = side.w2.size(3), m = side.w2.size(4);
    const at::Tensor inner =
        activate(product_by_group(rows.unsqueeze(0), side.w1, context),
                 options_.compose_activation == config::ComposeActivation::gelu ? config::Activation::gelu
                                                                                : config::Activation::gelu_tanh);
    const at::Tensor both = product_by_group(inner, side.w2.view({groups, hidden, 2 * rank * m}), context);
    // [C, N, 2, R, m] to [2, N, R, C, m]
    const at::Tensor uw = both.view({groups, -1, 2, rank, m}).permute({2, 1, 3, 0, 4});
    const at::Tensor u = uw[0];
    parts.push_back((u * (u.square().mean(-1, /*keepdim=*/true) + kFactorEpsilon).rsqrt()).reshape_symint({b, n, -1}));
    parts.push_back(uw[1].reshape_symint({b, n, -1}));
  }
  if (side.wg.defined()) {
    parts.push_back(linear(rows, side.wg, {}, context).tanh().view_symint({b, n, -1}));
  }
  return parts.empty() ? at::empty_symint({b, n, 0}, rows.options()) : at::cat(parts, 2);
}

ops::HeadMapSide HeadMaps::map_of(const Side& side, at::Tensor factors) const {
  return {.factors = std::move(factors),
          .rank = side.w1.defined() ? options_.compose_rank : 0,
          .has_gate = side.wg.defined()};
}

at::Tensor HeadMaps::key_factors(const at::Tensor& source, const Context& context) const {
  std::vector<at::Tensor> parts;
  for (const std::optional<Stage>* stage : {&pre_, &post_}) {
    if (*stage) {
      parts.push_back(factors((*stage)->key, source, context));
    }
  }
  return at::cat(parts, 2).unsqueeze(1);
}

ops::HeadMap HeadMaps::start(const Stage& stage) const {
  ops::HeadMap map{
      .n_groups = options_.compose_groups, .skip = options_.compose_skip, .fixed = {}, .query = {}, .key = {}};
  if (stage.fixed.defined()) {
    map.fixed = stage.fixed;
  }
  return map;
}

Composition::Maps HeadMaps::maps(const at::Tensor& x, const at::Tensor& key_factors, const Context& context) const {
  Maps maps;
  const at::Tensor keys = key_factors.squeeze(1);
  const c10::SymInt half = pre_ && post_ ? keys.sym_size(2) / 2 : keys.sym_size(2);
  const auto fill = [&](const std::optional<Stage>& stage, const c10::SymInt& first, std::optional<ops::HeadMap>& map) {
    if (stage) {
      map = start(*stage);
      map->query = map_of(stage->query, factors(stage->query, x, context));
      map->key = map_of(stage->key, keys.narrow_symint(2, first, half));
    }
  };
  fill(pre_, 0, maps.pre);
  fill(post_, pre_ ? half : c10::SymInt(0), maps.post);
  return maps;
}

at::Tensor HeadMaps::key_maps(const at::Tensor& key_factors) const {
  const at::Tensor keys = key_factors.squeeze(1);  // [B, S, F]
  const std::int64_t b = keys.size(0), s = keys.size(1), h = options_.n_heads;
  const std::int64_t half = pre_ && post_ ? keys.size(2) / 2 : keys.size(2);
  std::vector<at::Tensor> stages;
  std::int64_t first = 0;
  for (const std::optional<Stage>* stage : {&pre_, &post_}) {
    if (!*stage) {
      continue;
    }
    ops::HeadMap map = start(**stage);
    map.key = map_of((*stage)->key, keys.narrow(2, first, half));
    first += half;
    // Row m of the map is what it makes of a pair whose heads are all 0 but the m-th.
    const at::Tensor unit = at::eye(h, keys.options()).view({h, 1, h, 1}).expand({h, b, h, s});
    std::vector<at::Tensor> rows;
    for (std::int64_t m = 0; m < h; ++m) {
      rows.push_back(ops::apply_head_map(map, unit[m].unsqueeze(2)).squeeze(2));  // [B, H, S]
    }
    stages.push_back(at::stack(rows, 2).permute({0, 3, 2, 1}));  // [B, S, m, n]
  }
  return at::stack(stages, 2);
}

template <bool kDynamic>
std::unique_ptr<Composition> make_head_maps(const config::AttentionOptions& options, std::int64_t d_model,
                                            const Builder& build) {
  return std::make_unique<HeadMaps>(options, kDynamic, d_model, build);
}

const Factory<MakeComposition> kNoComposition("none",
                                              [](const config::AttentionOptions&, std::int64_t,
                                                 const Builder&) -> std::unique_ptr<Composition> { return nullptr; });
const Factory<MakeComposition> kStaticMap("static", make_head_maps<false>);
const Factory<MakeComposition> kDynamicMaps("dynamic", make_head_maps<true>);

}  // namespace
}  // namespace headroom::nn
