#include "start.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "fit.h"
#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::convert {

bool is_dense(const config::AttentionOptions& options) {
  return options.projection == "dense" && options.score == "dot" && options.composition == "none";
}

namespace {

constexpr char kMatrices[] = {'q', 'k', 'v', 'o'};
constexpr double kRouterScale = 0.3;  // relative to a router's usual initialisation; gates start near their mean
constexpr double kKeyNoise = 0.1;     // noise between a mixture's keys, relative to the key matrix's deviation
constexpr double kSink = -10.0;       // a weight of about exp(-10): small, but its gradient is not lost

class LayerStart {
 public:
  using AttentionOptions = config::AttentionOptions;
  explicit LayerStart(const StartRequest& request) : r_(request), from_(request.from), to_(request.to) {}

  bool start() {
    const bool same_heads = keeps_heads() && to_.d_head == from_.d_head;
    const bool same_keys = same_heads && to_.kv_heads() == from_.kv_heads();
    copy_shared();
    const bool exact = start_composition() && start_extras();
    if (!is_dense(from_)) {
      const bool kept = keeps_projection();
      if (!kept && has_kept_maps() && takes_heads()) {
        refit();
      }
      scale_outputs();
      return kept && exact;
    }
    if (to_.projection == "latent") {
      start_latent();
      scale_outputs();
      return false;
    }
    if (to_.projection == "routed_heads") {
      start_routed_heads();
      scale_outputs();
    }
    if (!takes_heads()) {
      return false;
    }
    if ((same_keys || (same_heads && to_.share_kv > 0)) && !has_bank()) {
      start_keys(all_heads());
      scale_outputs();
      return exact && to_.score == from_.score && to_.projection == "dense" && to_.share_kv == 0;
    }
    if (same_heads && !has_bank()) {
      share_keys();
    } else if (to_.d_head >= from_.d_head) {
      refit();
    }
    scale_outputs();
    return false;
  }

 private:
  bool takes_heads() const { return to_.projection->has_head_matrices() && to_.projection->has_fixed_heads(); }
  // Whether the layers have the same options, except for compositions, output gates and the dot score.
  bool keeps_projection() const {
    AttentionOptions same = to_;
    same.composition = from_.composition;
    same.gate_output = from_.gate_output;
    same.of<config::CompositionOptions>() = from_.of<config::CompositionOptions>();
    same.of<config::OutputGateOptions>() = from_.of<config::OutputGateOptions>();
    same.of<config::DotOptions>() = from_.of<config::DotOptions>();
    return config::differing_keys(same, from_).empty();
  }
  // Whether each head has one attention map from separate queries and keys. A source without dense values (SwitchHead)
  // then gives its maps to the target, and values and outputs are refitted.
  bool has_kept_maps() const {
    return from_.projection->has_head_matrices() && from_.projection->has_fixed_heads() && from_.score == "dot" &&
           from_.composition == "none" && !from_.has_experts('q') && !from_.has_experts('k') &&
           from_.computed_heads() == from_.n_heads && from_.n_heads == from_.computed_kv_heads() &&
           to_.computed_heads() <= from_.n_heads && to_.kv_heads() == to_.computed_heads() &&
           to_.d_head >= from_.d_head;
  }
  bool has_bank() const {
    return std::ranges::any_of(kMatrices, [&](char which) { return to_.has_experts(which); });
  }
  at::Tensor source(std::string_view name) const { return find_parameter(r_.source, r_.place, name); }
  at::Tensor target(std::string_view name) const { return find_parameter(r_.target, r_.place, name); }
  void write(std::string_view name, const at::Tensor& value) const {
    const at::Tensor to = target(name);
    if (to.defined()) {
      to.copy_(value.to(to.scalar_type()).expand_as(to));
    }
  }

  // Copies every parameter that both layers have in the same shape.
  void copy_shared() const {
    for (const nn::Parameter& parameter : r_.source.stored()) {
      if (parameter.name.starts_with(r_.place + ".")) {
        const std::string name = parameter.name.substr(r_.place.size() + 1);
        const at::Tensor to = target(name);
        if (to.defined() && to.sizes() == parameter.tensor.sizes()) {
          to.copy_(parameter.tensor);
        }
      }
    }
    for (const char* router : {"select", "select_in", "select_out", "select_shared", "select_mix"}) {
      if (const at::Tensor to = target(router); to.defined() && !source(router).defined()) {
        to.mul_(kRouterScale);
      }
    }
  }

  // Returns whether the maps start as the identity.
  bool start_composition() const {
    if (from_.composition != "none") {
      AttentionOptions same = to_;
      same.of<config::CompositionOptions>() = from_.of<config::CompositionOptions>();
      return to_.composition == from_.composition && config::differing_keys(same, to_).empty();  // copied
    }
    for (const char* stage : {"pre", "post"}) {
      for (const char* side : {".q", ".k"}) {
        write(std::string(stage) + side + ".wg", at::zeros({1}));
        if (const at::Tensor w2 = target(std::string(stage) + side + ".w2"); w2.defined()) {
          w2.select(2, 1).zero_();  // one factor of the low-rank map; the other gives it a gradient
        }
      }
      if (const at::Tensor fixed = target(std::string(stage) + ".wb"); fixed.defined()) {
        fixed.zero_();
        if (!to_.of<config::CompositionOptions>().compose_skip) {
          fixed.diagonal(0, 1, 2).fill_(1.0);
        }
      }
    }
    return to_.of<config::CompositionOptions>().compose_skip || to_.of<config::CompositionOptions>().compose_static ||
           to_.composition == "none" || to_.composition == "static";
  }

  // Returns whether gates, sinks, norms and the exclusion of own values leave the layer's result unchanged.
  bool start_extras() const {
    if (!keeps_gate()) {
      write("w_gate", at::zeros({1}));
      write("b_gate", at::zeros({1}));
    }
    if (!source("sink").defined() || !keeps_heads()) {
      write("sink", at::full({1}, kSink));
    }
    return to_.qk_norm == from_.qk_norm && to_.of<config::DotOptions>().sink == from_.of<config::DotOptions>().sink &&
           to_.of<config::OutputGateOptions>().exclusive == from_.of<config::OutputGateOptions>().exclusive &&
           keeps_scores() && (keeps_gate() || from_.gate_output == "none");
  }
  bool keeps_gate() const {  // copied
    return to_.gate_output == from_.gate_output &&
           (to_.gate_output == "none" || (keeps_heads() && to_.projection == from_.projection));
  }

  bool keeps_scores() const {
    const auto &to = to_.of<config::DotOptions>(), &from = from_.of<config::DotOptions>();
    const bool same = to.formula == from.formula && to.mask == from.mask && to.learned == from.learned &&
                      to.normalise == from.normalise;
    return same || (config::starts_as_product(from, from_.n_heads, from_.d_head) &&
                    config::starts_as_product(to, to_.computed_heads(), to_.d_head));
  }
  bool keeps_heads() const { return to_.computed_heads() == from_.n_heads; }

  std::vector<std::int64_t> all_heads() const {
    std::vector<std::int64_t> heads(static_cast<std::size_t>(from_.n_heads));
    std::iota(heads.begin(), heads.end(), std::int64_t{0});
    return heads;
  }
  at::Tensor key_heads_of(const std::vector<std::int64_t>& heads) const {
    const std::int64_t group = from_.n_heads / from_.kv_heads();
    std::vector<std::int64_t> keys = transformed(heads, [&](const std::int64_t head) { return head / group; });
    return at::tensor(keys, at::kLong);
  }

  // Returns the factor of a bank's experts, so that their gated sum is the matrix.
  double expert_factor() const {
    return to_.of<config::RoutingOptions>().gate == config::Gate::sigmoid
               ? 2.0 / static_cast<double>(to_.of<config::RoutingOptions>().top_k)
               : 1.0;
  }

  // Writes matrices [d, H, e] (in) or [H, e, d] (out) as the target stores them: a matrix, or a bank [H, E, ...].
  void write_matrix(char which, const at::Tensor& by_head, bool heads_first) const {
    const std::string name{'w', '_', which};
    if (to_.has_experts(which)) {
      const at::Tensor first = heads_first ? by_head : by_head.transpose(0, 1);  // [H, d, e] or [H, e, d]
      write(name, first.unsqueeze(1) * expert_factor());
    } else {
      write(name, by_head);
    }
  }

  // Writes keys [d, H, e] to every key of a mixture.
  void write_keys(const at::Tensor& keys) const {
    const std::int64_t copies = to_.key_projections();
    if (copies == 1) {
      write_matrix('k', keys, false);
      return;
    }
    const at::Tensor to = target("w_k");
    const at::Tensor noise = to - to.mean();  // fresh draws, rescaled
    write("w_k", keys.unsqueeze(0) + noise * (kKeyNoise * keys.std().item<double>() / noise.std().item<double>()));
  }

  // Writes the queries and keys of the chosen heads.
  void start_keys(const std::vector<std::int64_t>& heads) const {
    const at::Tensor rows = at::tensor(heads, at::kLong), key_rows = key_heads_of(heads);
    const std::int64_t more = to_.d_head - from_.d_head;
    const double scale = std::sqrt(query_scale());  // shared by queries and keys
    const auto widen = [&](const at::Tensor& w, const at::Tensor& fill) {
      return more == 0 ? w : at::cat({w * scale, fill}, -1);
    };
    const auto grouped_rows = to_.kv_heads() == to_.n_heads ? key_rows : at::arange(to_.kv_heads(), at::kLong);
    const at::Tensor q = source("w_q").index_select(1, rows), k = source("w_k").index_select(1, grouped_rows);
    if (const at::Tensor fresh = target("w_q"); more > 0 && !to_.has_experts('q')) {
      write_matrix('q', widen(q, fresh.narrow(2, from_.d_head, more).clone()), false);
    } else {
      write_matrix('q', widen(q, at::zeros({q.size(0), q.size(1), more})), false);
    }
    write_keys(widen(k, at::zeros({k.size(0), k.size(1), more})));
    if (const at::Tensor b = source("b_q"); b.defined()) {
      write("b_q", widen(b.index_select(0, rows), at::zeros({rows.size(0), more})));
      write("b_k", widen(source("b_k").index_select(0, grouped_rows), at::zeros({grouped_rows.size(0), more})));
    }
    if (const at::Tensor w = source("w_forget"); w.defined()) {
      write("w_forget", w.index_select(1, rows));
    }
    if (const at::Tensor b = source("b_forget"); b.defined()) {
      write("b_forget", b.index_select(0, rows));
    }
    if (const at::Tensor sink = source("sink"); sink.defined()) {
      write("sink", sink.index_select(0, rows));
    }
    if (const at::Tensor w = source("w_pos"); w.defined()) {
      write("w_pos", widen(w.index_select(1, rows), at::zeros({w.size(0), rows.size(0), more})));
      for (const char* bias : {"u", "v"}) {
        if (const at::Tensor b = source(bias); b.defined()) {
          write(bias, widen(b.index_select(0, rows), at::zeros({rows.size(0), more})));
        }
      }
    }
  }

  void write_values(const ValueFit& fit) const {
    write_matrix('v', fit.values.permute({1, 0, 2}), false);
    write_matrix('o', fit.outputs, true);
    if (const at::Tensor b = target("b_o"); b.defined()) {
      b.copy_(fit.bias);
      write("b_v", at::zeros({1}));
    }
  }

  // For fewer heads or experts: keeps the best heads' maps.
  void refit() const {
    const HeadSums sums = r_.sums();
    const bool with_bias = target("b_o").defined();
    const ValueFit fit = to_.computed_heads() < from_.n_heads
                             ? choose_heads(sums, to_.computed_heads(), to_.d_head, with_bias)
                             : fit_values(sums, all_heads(), to_.d_head, with_bias);
    start_keys(fit.heads);
    write_values(fit);
  }

  // Keeps the query heads and changes the number of key and value heads, by averaging or repeating heads.
  void share_keys() const {
    const std::int64_t before = from_.kv_heads(), groups = to_.kv_heads();
    const auto shared = [&](const at::Tensor& w, std::int64_t axis) {
      return groups > before ? w.repeat_interleave(groups / before, axis)
                             : w.unflatten(axis, {groups, before / groups}).mean(axis + 1);
    };
    for (const char* name : {"w_k", "w_v"}) {
      write(name, shared(source(name), 1));
    }
    for (const char* name : {"b_k", "b_v"}) {
      if (const at::Tensor b = source(name); b.defined()) {
        write(name, shared(b, 0));
      }
    }
  }

  at::Tensor wide(std::string_view name) const { return source(name).to(at::kDouble); }
  // Repeats keys or values [d, G, e] for the query heads, [d, H, e].
  at::Tensor by_query_head(const at::Tensor& w) const {
    return w.repeat_interleave(from_.n_heads / from_.kv_heads(), 1);
  }
  // Returns the factor of the queries that keeps the scores, which are divided by the square root of scale_width or
  // d_head. A learned scale is copied and needs no factor.
  double query_scale() const {
    const auto width = [](const config::AttentionOptions& o) {
      const double given = o.of<config::DotOptions>().scale_width;
      return given > 0.0 ? given : static_cast<double>(o.d_head);
    };
    return to_.scale == config::Scale::learned ? 1.0 : std::sqrt(width(to_) / width(from_));
  }
  std::int64_t rotary_of(const config::AttentionOptions& o) const {
    return o.position == "rope" ? o.projection->rotary_channels(o) : 0;
  }

  // Writes `values` to the first channels of the last axis. `zeros`: sets the other channels to 0.
  void write_first(std::string_view name, const at::Tensor& values, bool zeros) const {
    const at::Tensor to = target(name);
    if (zeros) {
      to.zero_();
    }
    to.narrow(-1, 0, values.size(-1)).copy_(values);
  }

  void start_latent() const {
    const std::int64_t rotated = rotary_of(from_), p = rotary_of(to_), heads = from_.n_heads;
    const at::Tensor turning = target("w_k_rotary");
    if (to_.n_heads != heads || p > rotated || to_.value_width() < from_.d_head ||
        (turning.defined() && turning.size(-1) != p)) {
      return;  // no room for the source's heads: the fit starts from random parameters
    }
    const Roots roots(r_.covariance());
    const at::Tensor q = wide("w_q") * query_scale(), k = by_query_head(wide("w_k")), v = by_query_head(wide("w_v"));
    // Pair m of the source is (m, m + rotated/2); the target rotates the first p/2 pairs.
    const at::Tensor pairs = at::arange(p / 2, at::kLong), fast = at::cat({pairs, pairs + rotated / 2});
    // The order of the other channels: unrotated channels first, then by rising frequency.
    const at::Tensor slow_pairs = at::arange(rotated / 2 - 1, p / 2 - 1, -1, at::kLong);
    const at::Tensor slow = at::cat(
        {at::arange(rotated, from_.d_head, at::kLong), at::stack({slow_pairs, slow_pairs + rotated / 2}, 1).flatten()});
    const std::int64_t rest = std::min(slow.size(0), to_.d_head - p);
    const at::Tensor kept = slow.narrow(0, 0, rest);
    const SharedKeys shared = share_rotated(q.index_select(2, fast), k.index_select(2, fast), roots);
    write("w_k_rotary", shared.keys);
    const at::Tensor slow_q = q.index_select(2, kept), slow_k = k.index_select(2, kept);
    write_queries(at::cat({shared.queries, slow_q}, 2), roots);
    // Each column's error is weighted by the norm of the queries or outputs that multiply it; keys and values then have
    // equal total weight.
    const auto energy = [&](const at::Tensor& w, const at::Tensor& weights) {
      return (at::mm(roots.root, w.flatten(1)) * weights).square().sum().sqrt().clamp_min(1e-12);
    };
    const at::Tensor reads_k = at::mm(roots.root, slow_q.flatten(1)).norm(2, at::IntArrayRef{0}),
                     reads_v = wide("w_o").norm(2, at::IntArrayRef{2}).flatten();
    const Normalised normalised =
        with_orthonormal_columns(low_rank(at::cat({slow_k.flatten(1), v.flatten(1)}, 1),
                                          at::cat({reads_k / energy(slow_k, reads_k), reads_v / energy(v, reads_v)}),
                                          target("w_kv_down").size(1), roots),
                                 roots);
    const LowRank& latent = normalised.factors;
    write_first("w_kv_down", latent.down, false);
    write("kv_norm", at::full({1}, normalised.size));
    if (latent.up.size(0) < target("w_kv_down").size(1)) {
      return;  // the latent is wider than a token
    }
    const auto up = [&](std::int64_t first, std::int64_t width) {
      return latent.up.narrow(1, first, heads * width).view({-1, heads, width});
    };
    write_first("w_k", up(0, rest), true);
    write_first("w_v", up(heads * rest, from_.d_head), false);
    target("w_o").zero_();
    target("w_o").narrow(1, 0, from_.d_head).copy_(wide("w_o"));
  }

  // Writes queries [d, H, c], through a whitened low-rank vector if the target compresses them.
  void write_queries(const at::Tensor& queries, const Roots& roots) const {
    if (const at::Tensor down = target("w_q_down"); down.defined()) {
      const at::Tensor flat = queries.flatten(1);
      const auto [factors, size] =
          with_orthonormal_columns(low_rank(flat, at::ones({flat.size(1)}, at::kDouble), down.size(1), roots), roots);
      if (factors.down.size(1) < down.size(1)) {
        return;  // the vector is wider than a token
      }
      write_first("w_q_down", factors.down, false);
      write("q_down_norm", at::full({1}, size));
      write_first("w_q", factors.up.view({-1, queries.size(1), queries.size(2)}), false);
    } else {
      write_first("w_q", queries, false);
    }
  }

  // Each expert becomes a head; all experts share one key head and one value head.
  void start_routed_heads() const {
    const auto& routing = to_.of<config::RoutingOptions>();
    if (routing.n_experts != from_.n_heads || to_.d_head < from_.d_head || to_.key_projections() > 1 ||
        target("w_k").dim() != 2) {
      return;
    }
    const Roots roots(r_.covariance());
    const at::Tensor q = wide("w_q") * query_scale(), k = by_query_head(wide("w_k")), v = by_query_head(wide("w_v"));
    const std::int64_t rotated = rotary_of(from_), e = from_.d_head;
    const SharedKeys turning = share_rotated(q.narrow(2, 0, rotated), k.narrow(2, 0, rotated), roots);
    const SharedKeys still =
        share_plain(q.narrow(2, rotated, e - rotated), k.narrow(2, rotated, e - rotated), to_.d_head - rotated, roots);
    write_first("w_k", at::cat({turning.keys, still.keys}, 1), true);
    write_first("w_q", at::cat({turning.queries, still.queries}, 2).transpose(0, 1), false);
    // The products of value and output matrices, [d, H d], factored through one value head.
    const at::Tensor products = at::einsum("dhe,hef->dhf", {v, wide("w_o")});
    const LowRank shared = low_rank(products.flatten(1), at::ones({1}, at::kDouble), to_.d_head, roots);
    write_first("w_v", shared.down, false);
    const double gates = gate_factor(to_.n_heads, routing.n_experts);
    const at::Tensor outputs = shared.up.view({-1, from_.n_heads, products.size(2)}).transpose(0, 1) * gates;
    target("w_o").zero_();
    target("w_o").narrow(1, 0, outputs.size(1)).copy_(outputs);
  }

  // Returns the reciprocal of the mean gate of the routed heads if each token uses `chosen` of `all` heads.
  double gate_factor(std::int64_t chosen, std::int64_t all) const {
    const config::Gate gate = to_.of<config::RoutingOptions>().gate;
    return gate == config::Gate::sigmoid   ? 2.0
           : gate == config::Gate::softmax ? static_cast<double>(all)
                                           : static_cast<double>(chosen);
  }

  // Gates on the head outputs start at their mean; the outputs are divided by this mean.
  void scale_outputs() const {
    double factor = to_.gate_output == "none" || keeps_gate() ? 1.0 : 2.0;
    if (to_.projection == "gated_heads" && from_.projection != "gated_heads") {
      factor *= gate_factor(to_.of<config::RoutingOptions>().top_k, to_.computed_heads());
    }
    if (const at::Tensor o = target("w_o"); factor != 1.0) {
      o.mul_(factor);
    }
  }

  const StartRequest& r_;
  const config::AttentionOptions& from_;
  const config::AttentionOptions& to_;
};

}  // namespace

at::Tensor find_parameter(const nn::Parameters& in, const std::string& place, std::string_view name) {
  const auto stored = in.stored();
  const auto found = std::ranges::find(stored, fmt::format("{}.{}", place, name), &nn::Parameter::name);
  return found == stored.end() ? at::Tensor() : found->tensor;
}

bool start_layer(const StartRequest& request) {
  const at::NoGradGuard guard;
  return LayerStart(request).start();
}

}  // namespace headroom::convert
