// Dense, grouped and expert projections: each of q, k, v and o is one matrix per head or a bank of experts per head
// (SwitchHead Eq. 7-10). Differential heads have several queries and keys and a wider value. Gated heads are dense
// projections with a routed gate (SwitchHead Eq. 4-6).

#include "engine/nn/linear.h"
#include "engine/ops/one_pass.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/nn/attention_parts.h"

namespace headroom::nn {
namespace {

class HeadProjections : public Projection {
 public:
  HeadProjections(const config::AttentionOptions& options, const LayerInit& init, const Builder& build)
      : options_(options),
        routing_(routing_options(options, options.n_heads)),
        shared_selection_(options.of<config::ExpertOptions>().shared_selection),
        has_loss_(!options.projection->balance_losses(options).empty()),
        d_model_(init.d_model) {
    q_ = input_side('q', 1, init, build);
    if (options.share_kv == 0) {  // otherwise the layer uses another layer's keys and values
      k_ = input_side('k', options.key_projections(), init, build);
      v_ = input_side('v', 1, init, build);
    }
    o_ = output_side(init, build);
    const auto router = [&](const char* name) {
      const std::int64_t n_experts = routing_.n_experts;
      return build.matrix(name, {init.d_model, options.n_heads, n_experts},
                          Distribution::normal(init.scaled(init.d_model)),
                          {.in = init.d_model, .out = options.n_heads * n_experts});
    };
    if (routes_source() && !shared_selection_) {
      select_in_ = router("select_in");
    }
    if (q_.bank || o_.bank || (routes_source() && shared_selection_)) {
      select_out_ = router("select_out");
    }
  }

  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads;
    const bool reads_source = input.source.defined();
    const std::optional<Routing> on_source = reads_source ? route_source(input, context) : std::nullopt;
    if (input.x.defined()) {
      heads.query_routing = route_queries(input, on_source, context);
    }
    const std::vector<at::Tensor> dense = dense_together(input, context);
    const auto result = [&](std::size_t place, const Matrix& m, std::int64_t copy, const at::Tensor& x,
                            const std::optional<Routing>& routing) {
      return place < dense.size() && dense[place].defined() ? split(dense[place], m)
                                                            : apply(m, copy, x, routing, context);
    };
    if (input.x.defined()) {
      heads.q = result(0, q_, 0, input.x, heads.query_routing);
    }
    if (!reads_source) {
      return heads;
    }
    for (std::int64_t r = 0; r < options_.key_projections(); ++r) {
      heads.keys.push_back(result(static_cast<std::size_t>(r) + 1, k_, r, input.source, on_source));
    }
    heads.v = result(heads.keys.size() + 1, v_, 0, input.source_value, on_source);
    return heads;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    const at::Tensor by_token = ops::transposed(o, 1, 2);  // [B, T, H, e]
    const c10::SymInt b = by_token.sym_size(0), t = by_token.sym_size(1);
    if (!o_.bank) {
      const at::Tensor rows = ops::reshaped(by_token, {b, t, by_token.sym_size(2) * by_token.sym_size(3)});
      return linear(rows, o_.w, o_.bias, context, /*in_axes=*/2);
    }
    const at::Tensor rows = ops::reshaped(by_token, {-1, options_.n_heads, options_.value_width()});
    return ops::reshaped(grouped(o_.w, o_.bias, rows, *heads.query_routing, /*sum_heads=*/true, context),
                         {b, t, d_model_});
  }

 private:
  struct Matrix {
    // Input side [d, H, e] or a bank [H, E, d, e]; R copies add a leading axis, n queries or keys per head make it [..,
    // n, e]. Output side [H, w, d] or [H, E, w, d]. Values have w channels instead of e.
    at::Tensor w;
    at::Tensor bias;
    bool bank = false;
    std::int64_t n_heads = 0;
    std::int64_t width = 0;   // channels of each query, key or value
    std::int64_t copies = 1;  // R key projections of a mixture

    at::Tensor weight(std::int64_t copy) const { return copies == 1 ? w : w[copy]; }
    at::Tensor bias_of(std::int64_t copy) const { return copies == 1 || !bias.defined() ? bias : bias[copy]; }
  };

  bool routes_source() const { return k_.bank || v_.bank; }  // routes the source tokens

  // Expert layers initialise all projections from a normal distribution, other layers from a truncated normal one.
  at::Tensor initialise(std::string_view name, const std::vector<std::int64_t>& shape, const LayerInit& init,
                        const Fan& fan, const Builder& build) const {
    const double std = init.scaled(fan.in);
    const bool truncated = options_.projection->starts_truncated();
    return build.matrix(name, shape, truncated ? Distribution::truncated_normal(std) : Distribution::normal(std), fan);
  }

  Matrix input_side(char which, std::int64_t copies, const LayerInit& init, const Builder& build) const {
    Matrix m;
    m.bank = options_.has_experts(which);
    m.n_heads = options_.score->projected_heads(options_, which);
    m.copies = copies;
    m.width = which == 'v' ? options_.value_width() : options_.d_head;
    const std::int64_t d = init.d_model, n_heads = m.n_heads, width = options_.projected_width(which);
    std::vector<std::int64_t> shape = m.bank ? std::vector{n_heads, routing_.n_experts, d} : std::vector{d, n_heads};
    std::vector<std::int64_t> bias = {n_heads};
    for (std::vector<std::int64_t>* axes : {&shape, &bias}) {
      if (width > m.width) {
        axes->push_back(width / m.width);
      }
      axes->push_back(m.width);
    }
    if (copies > 1) {
      shape.insert(shape.begin(), copies);
      bias.insert(bias.begin(), copies);
    }
    const MatrixAxes axes{.batch = (m.bank ? 2 : 0) + (copies > 1 ? 1 : 0)};
    m.w = initialise(std::string{'w', '_', which}, shape, init, {.in = d, .out = n_heads * width, .gain = kQkvGain},
                     build.for_hidden(axes));
    if (options_.bias) {
      m.bias = build.bias(std::string{'b', '_', which}, bias, d);
    }
    return m;
  }

  Matrix output_side(const LayerInit& init, const Builder& build) const {
    Matrix m;
    m.bank = options_.has_experts('o');
    m.n_heads = options_.n_heads;
    const std::int64_t h = m.n_heads, d = init.d_model, w = options_.value_width();
    m.w = initialise("w_o", m.bank ? std::vector{h, routing_.n_experts, w, d} : std::vector{h, w, d}, init,
                     {.in = h * w, .out = d, .into_stream = true},
                     build.for_hidden(m.bank ? MatrixAxes{.batch = 2} : MatrixAxes{.rows = 2}));
    if (options_.projection->has_output_bias(options_)) {
      m.bias = build.bias("b_o", {d}, h * w);
    }
    return m;
  }

  // Batch-invariant decoding: multiplies the tokens x by the matrices of q, each k, and v in one call; otherwise empty.
  // Undefined where the matrix is a bank or multiplies other tokens.
  std::vector<at::Tensor> dense_together(const ProjectionInput& input, const Context& context) const {
    if (!context.batch_invariant || !input.x.defined()) {
      return {};
    }
    std::vector<std::size_t> places;
    std::vector<Weights> all;
    const auto add = [&](std::size_t place, const Matrix& m, std::int64_t copy, const at::Tensor& x) {
      if (!m.bank && x.is_same(input.x)) {
        places.push_back(place);
        all.push_back({m.weight(copy), m.bias_of(copy)});
      }
    };
    const auto n_keys = static_cast<std::size_t>(options_.key_projections());
    add(0, q_, 0, input.x);
    for (std::size_t r = 0; r < n_keys; ++r) {
      add(r + 1, k_, static_cast<std::int64_t>(r), input.source);
    }
    add(n_keys + 1, v_, 0, input.source_value);
    if (all.size() < 2) {
      return {};
    }
    std::vector<at::Tensor> results(n_keys + 2);
    const std::vector<at::Tensor> products = linear_of_each(input.x, all, context);
    for (std::size_t i = 0; i < places.size(); ++i) {
      results[places[i]] = products[i];
    }
    return results;
  }

  // [B, T, n width] to [B, n, T, width].
  static at::Tensor split(const at::Tensor& y, const Matrix& m) {
    return ops::transposed(ops::reshaped(y, {y.sym_size(0), y.sym_size(1), y.sym_size(2) / m.width, m.width}), 1, 2);
  }

  Routing route(const at::Tensor& x, const std::optional<at::Tensor>& valid, const at::Tensor& w,
                const Context& context, const std::string& name) const {
    const RoutingOptions options = with_padding(routing_, valid);
    Routing routing = route_tokens(ops::reshaped(x, {-1, d_model_}), w, options, context, name);
    if (has_loss_ && context.losses != nullptr) {
      std::vector<at::Tensor> of_heads;
      for (std::int64_t h = 0; h < routing_.n_heads; ++h) {
        of_heads.push_back(entropy_loss(routing.score.select(1, h), options.valid));
      }
      add_loss(context, "routing_entropy", at::stack(of_heads).mean());
    }
    return routing;
  }

  std::optional<Routing> route_source(const ProjectionInput& input, const Context& context) const {
    if (!routes_source()) {
      return std::nullopt;
    }
    return route(input.source, input.valid_keys, shared_selection_ ? select_out_ : select_in_, context, "select_in");
  }

  std::optional<Routing> route_queries(const ProjectionInput& input, const std::optional<Routing>& on_source,
                                       const Context& context) const {
    if (!q_.bank && !o_.bank) {
      return std::nullopt;
    }
    if (shared_selection_ && on_source && !input.cross) {
      // The queries are the last tokens of the source, whose routing has already been computed.
      const c10::SymInt t = input.x.sym_size(1), s = input.source.sym_size(1);
      Routing same = s == t ? *on_source : on_source->narrow(input.x.sym_size(0), s - t, t);
      same.index = context.observe("select_out.index", same.index);
      same.weight = context.observe("select_out.weight", same.weight);
      return same;
    }
    return route(input.x, input.valid_queries, select_out_, context, "select_out");
  }

  at::Tensor apply(const Matrix& m, std::int64_t copy, const at::Tensor& x, const std::optional<Routing>& routing,
                   const Context& context) const {
    const at::Tensor w = m.weight(copy), bias = m.bias_of(copy);
    if (!m.bank) {
      return split(linear(x, w, bias, context), m);
    }
    const at::Tensor rows = ops::reshaped(x, {-1, d_model_});
    const at::Tensor y = grouped(w, bias, rows, *routing, /*sum_heads=*/false, context);
    return split(ops::reshaped(y, {x.sym_size(0), x.sym_size(1), y.sym_size(1) * y.sym_size(2)}), m);
  }

  // [H, E, in, out], `out` one axis or two, to [H E, in, out].
  static at::Tensor as_bank(const at::Tensor& w) { return ops::reshaped(w, {w.size(0) * w.size(1), w.size(2), -1}); }

  // `bank` is a result of as_bank().
  static at::Tensor grouped(const at::Tensor& bank, const at::Tensor& bias, const at::Tensor& rows,
                            const Routing& routing, bool sum_heads, const Context& context) {
    at::Tensor y = expert_matmul({.input = to_compute(rows, context),
                                  .bank = as_bank(to_compute(bank, context)),
                                  .index = routing.bank_index(),
                                  .weight = routing.weight,
                                  .sum_heads = sum_heads},
                                 context);
    return bias.defined() ? y + to_compute(bias, context).flatten(sum_heads ? 0 : 1) : y;
  }

  config::AttentionOptions options_;
  RoutingOptions routing_;
  bool shared_selection_;
  bool has_loss_;  // whether the routing has losses
  std::int64_t d_model_;
  Matrix q_, k_, v_, o_;
  at::Tensor select_in_, select_out_;  // [d, H, E]; shared_selection uses select_out_ for both sides
};

// Computes all heads. The outputs of the top k heads of the query's token are multiplied by their gates, the others by
// 0 (SwitchHead Eq. 4-6; a baseline that saves no computation).
class GatedHeads : public Projection {
 public:
  GatedHeads(const config::AttentionOptions& options, const LayerInit& init, const Builder& build)
      : heads_(options, init, build), routing_(routing_options(options, 1)) {
    routing_.n_experts = options.n_heads;
    select_ = build.matrix("select", {init.d_model, options.n_heads}, Distribution::normal(init.scaled(init.d_model)),
                           {.in = init.d_model, .out = options.n_heads});
  }

  Heads project(const ProjectionInput& input, const Context& context) const override {
    Heads heads = heads_.project(input, context);
    if (input.x.defined()) {
      const Routing routed =
          route_tokens(input.x.flatten(0, 1), select_, with_padding(routing_, input.valid_queries), context, "select");
      const at::Tensor gate = at::zeros_like(routed.score).scatter(-1, routed.index, routed.weight);  // [B T, 1, H]
      const c10::SymInt b = input.x.sym_size(0), t = input.x.sym_size(1);
      heads.gate = to_compute(gate.flatten(1).unflatten_symint(0, {b, t}).transpose(1, 2).unsqueeze(3), context);
    }
    return heads;
  }

  at::Tensor combine(const at::Tensor& o, const Heads& heads, const Context& context) const override {
    return heads_.combine(o, heads, context);
  }

 private:
  HeadProjections heads_;
  RoutingOptions routing_;
  at::Tensor select_;  // [d, H]
};

const Factory<MakeProjection> kDenseHeads("dense", make_part<Projection, HeadProjections>);
const Factory<MakeProjection> kExpertHeads("experts", make_part<Projection, HeadProjections>);
const Factory<MakeProjection> kGatedHeads("gated_heads", make_part<Projection, GatedHeads>);

}  // namespace
}  // namespace headroom::nn
