// Head maps: fixed, and computed from the tokens (DCMHA Eq. 3-8, App. D). ops::head_map_factors computes the factors of
// a token; without the dynamic part only the fixed map remains.
//
// Letters: B batch, n tokens, d d_model, H heads in C groups of m, R rank, I = 2 R m.
#include "headroom/nn/attention_parts.h"

#include <cmath>
#include <vector>

#include "engine/nn/linear.h"
#include "headroom/config/part_options.h"
#include "headroom/ops/head_map.h"

namespace headroom::nn {
namespace {

double glorot(std::int64_t in, std::int64_t out) {
  return std::sqrt(2.0 / static_cast<double>(in + out));
}

class HeadMaps : public Composition {
 public:
  // Parameters "pre.q.w1" [C, d, I], "pre.q.w2" [C, I, 2, R, m], "pre.q.wg" [d, H], "pre.wb" [C, m, m], ...: stages pre
  // and post, sides q and k.
  HeadMaps(const config::AttentionOptions& options, bool dynamic, std::int64_t d_model, const Builder& build)
      : options_(options.of<config::CompositionOptions>()), n_heads_(options.n_heads) {
    for (const auto& [name, place] : {std::pair("pre", &Maps::pre), std::pair("post", &Maps::post)}) {
      if (options_.composes(name)) {
        stages_.push_back(make_stage(place, dynamic, d_model, build.in(name)));
      }
    }
  }

  // Returns F = 2 R H + H factors for each stage with low-rank maps and gates.
  at::Tensor key_factors(const at::Tensor& source, const Context& context) const override {
    return factors(&Stage::key, source, context).unsqueeze(1);
  }

  Maps maps(const at::Tensor& x, const at::Tensor& key_factors, const Context& context) const override {
    Maps maps;
    const at::Tensor keys = key_factors.squeeze(1), queries = factors(&Stage::query, x, context);
    const std::int64_t n = std::ssize(stages_);
    for (std::int64_t i = 0; i < n; ++i) {
      const Stage& stage = stages_[static_cast<std::size_t>(i)];
      const auto share = [&](const Side& side, const at::Tensor& all) -> ops::HeadMapSide {
        const c10::SymInt width = all.sym_size(2) / n;
        return {.factors = all.narrow_symint(2, i * width, width),
                .rank = side.w1.defined() ? options_.compose_rank : 0,
                .has_gate = side.wg.defined()};
      };
      ops::HeadMap map{.n_groups = options_.compose_groups,
                       .skip = options_.compose_skip,
                       .fixed = {},
                       .query = share(stage.query, queries),
                       .key = share(stage.key, keys)};
      if (stage.fixed.defined()) {
        map.fixed = stage.fixed;
      }
      maps.*stage.place = std::move(map);
    }
    return maps;
  }

 private:
  struct Side {
    at::Tensor w1, w2, wg;
  };
  struct Stage {
    std::optional<ops::HeadMap> Maps::*place;
    at::Tensor fixed;
    Side query, key;
  };

  Stage make_stage(std::optional<ops::HeadMap> Maps::*place, bool dynamic, std::int64_t d_model,
                   const Builder& build) const {
    Stage stage{.place = place, .fixed = {}, .query = {}, .key = {}};
    const std::int64_t groups = options_.compose_groups, m = n_heads_ / groups;
    if (!dynamic || options_.compose_static) {
      // Without a skip connection, all scores pass through the map; Xavier initialisation preserves their scale.
      const double spread = options_.compose_skip ? 0.1 / std::sqrt(static_cast<double>(n_heads_)) : glorot(m, m);
      stage.fixed = build.random("wb", {groups, m, m}, Distribution::normal(spread));
    }
    if (dynamic) {
      stage.query = make_side("query", d_model, build.in("q"));
      stage.key = make_side("key", d_model, build.in("k"));
    }
    return stage;
  }

  Side make_side(const char* name, std::int64_t d_model, const Builder& build) const {
    Side side;
    const std::int64_t h = n_heads_, rank = options_.compose_rank, groups = options_.compose_groups;
    const std::int64_t m = h / groups, hidden = 2 * rank * m;
    if (options_.has_low_rank(name)) {
      side.w1 =
          build.for_matmul().random("w1", {groups, d_model, hidden}, Distribution::normal(glorot(d_model, hidden)));
      const double spread = std::sqrt(static_cast<double>(2 * h * rank)) * static_cast<double>(h + rank);
      side.w2 = build.for_matmul().random("w2", {groups, hidden, 2, rank, m}, Distribution::normal(0.02 / spread));
    }
    if (options_.has_gates(name)) {
      side.wg = build.for_matmul().random("wg", {d_model, h}, Distribution::normal(0.05 * glorot(d_model, h)));
    }
    return side;
  }

  // Returns one side's factors of all stages, concatenated: [B, n, F].
  at::Tensor factors(Side Stage::*side, const at::Tensor& x, const Context& context) const {
    ops::HeadMapWeights weights{.tanh_gelu = options_.compose_activation == config::ComposeActivation::gelu_tanh};
    const auto add = [&](std::vector<at::Tensor>& to, const at::Tensor& w) {
      if (w.defined()) {
        to.push_back(to_compute(w, context));
      }
    };
    for (const Stage& stage : stages_) {
      add(weights.w1, (stage.*side).w1);
      add(weights.w2, (stage.*side).w2);
      add(weights.gate, (stage.*side).wg);
    }
    const at::Tensor rows = to_compute(x, context);
    if (weights.w1.empty() && weights.gate.empty()) {
      return at::empty_symint({x.sym_size(0), x.sym_size(1), 0}, rows.options());
    }
    const at::Tensor all = ops::head_map_factors(rows.flatten(0, 1), weights, context.implementation);
    return all.view_symint({x.sym_size(0), x.sym_size(1), all.sym_size(1)});
  }

  config::CompositionOptions options_;
  std::int64_t n_heads_;
  std::vector<Stage> stages_;
};

template <bool kDynamic>
std::unique_ptr<Composition> make_head_maps(const config::AttentionOptions& options, const LayerInit& init,
                                            const Builder& build) {
  return std::make_unique<HeadMaps>(options, kDynamic, init.d_model, build);
}

const Factory<MakeComposition> kNoComposition("none",
                                              [](const config::AttentionOptions&, const LayerInit&,
                                                 const Builder&) -> std::unique_ptr<Composition> { return nullptr; });
const Factory<MakeComposition> kStaticMap("static", make_head_maps<false>);
const Factory<MakeComposition> kDynamicMaps("dynamic", make_head_maps<true>);

}  // namespace

at::Tensor head_matrices(const Composition::Maps& maps, MapSide side, std::int64_t n_heads) {
  const std::int64_t axis = side == MapSide::query ? 3 : 2;  // axis of the other side's single token
  std::vector<at::Tensor> stages;
  for (const std::optional<ops::HeadMap>* stage : {&maps.pre, &maps.post}) {
    if (!*stage) {
      continue;
    }
    ops::HeadMap map = **stage;
    const at::Tensor factors = side == MapSide::query ? map.query.factors : map.key.factors;
    ops::HeadMapSide& other = side == MapSide::query ? map.key : map.query;
    other = ops::HeadMapSide();
    const std::int64_t b = factors.size(0), n = factors.size(1), h = n_heads;
    // Row m of the matrix is the result of mapping the m-th unit vector.
    const at::Tensor unit = at::eye(h, factors.options()).view({h, 1, h, 1}).expand({h, b, h, n});
    std::vector<at::Tensor> rows;
    for (std::int64_t m = 0; m < h; ++m) {
      rows.push_back(ops::apply_head_map(map, unit[m].unsqueeze(axis)).squeeze(axis));  // [B, H, n]
    }
    stages.push_back(at::stack(rows, 2).permute({0, 3, 2, 1}));  // [B, n, m, H]
  }
  return at::stack(stages, 2);
}

at::Tensor head_terms(const Composition::Maps& maps, MapSide side, std::int64_t n_heads) {
  std::vector<at::Tensor> stages;
  for (const std::optional<ops::HeadMap>* stage : {&maps.pre, &maps.post}) {
    if (!*stage) {
      continue;
    }
    const ops::HeadMapSide& of = side == MapSide::query ? (*stage)->query : (*stage)->key;
    const std::int64_t h = n_heads, m = h / (*stage)->n_groups;
    const at::Tensor group = at::floor_divide(at::arange(h, of.factors.options().dtype(at::kLong)), m);
    const at::Tensor inside = group.unsqueeze(1).eq(group.unsqueeze(0));
    const at::Tensor zeros = at::zeros({of.factors.size(0), of.factors.size(1), h, h}, of.factors.options());
    const at::Tensor low_rank = of.rank > 0 ? of.u().transpose(2, 3).matmul(of.w()) * inside : zeros;
    stages.push_back(at::stack({low_rank, of.has_gate ? at::diag_embed(of.gate()) : zeros}, 2));
  }
  return at::stack(stages, 2);
}

}  // namespace headroom::nn
