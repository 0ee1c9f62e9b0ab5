#include "attribution.h"

#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>

#include "foundation/core/transformed.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "headroom/core/error.h"

namespace headroom::inspector {
namespace {

bool composes_at(const config::AttentionOptions& o, const char* stage) {
  return o.composition->has_maps(o, stage);
}

// Matrices of large models are in half precision.
at::Tensor in_float(const at::Tensor& value) {
  return at::isReducedFloatingType(value.scalar_type()) ? value.to(at::kFloat) : value;
}

// Returns the parameter; undefined if the layer has none of this name.
at::Tensor find_layer_parameter(const LayerInfo& layer, std::string_view name) {
  const std::string full = layer.scope + std::string(name);
  for (const nn::Parameter& parameter : layer.parameters.in_creation_order()) {
    if (parameter.name == full) {
      return in_float(parameter.tensor.detach());
    }
  }
  return {};
}

at::Tensor layer_parameter(const LayerInfo& layer, std::string_view name) {
  return in_float(layer.parameters.at(layer.scope + std::string(name)).detach());
}

const at::Tensor& required_value(const LayerValues& values, std::string_view name) {
  const auto found = values.find(name);
  if (found == values.end()) {
    fail("attribution: {} was not observed", name);
  }
  return found->second;
}

// Returns the value for the first sequence; undefined if there is none.
at::Tensor optional_value(const LayerValues& values, std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? at::Tensor() : found->second.select(0, 0);
}

// Returns index and weight [H, n, K] of the experts that the first sequence's n tokens are routed to.
std::pair<at::Tensor, at::Tensor> routing_in(const LayerValues& values, const std::string& name, std::int64_t n) {
  const auto rows = [&](const char* what) {
    return required_value(values, name + what).narrow(0, 0, n).transpose(0, 1);
  };
  return {rows(".index"), rows(".weight")};
}

at::Tensor repeat_groups(const at::Tensor& grouped, std::int64_t heads) {
  return grouped.size(0) == heads ? grouped : grouped.repeat_interleave(heads / grouped.size(0), 0);
}

void set_values(Attribution& a, const LayerValues& values, const LayerInfo& layer) {
  const std::int64_t heads = a.weights.size(0), s = a.weights.size(2);
  if (!layer.options.has_experts('v')) {
    const at::Tensor expanded = optional_value(values, "value");  // [S, H, w]
    const at::Tensor v = expanded.defined() ? expanded.transpose(0, 1) : required_value(values, "v").select(0, 0);
    a.values = repeat_groups(v, heads).unsqueeze(2);
    a.value_expert = at::full({heads, s, 1}, -1, at::kLong);
    return;
  }
  const at::Tensor own = optional_value(values, "source_value");
  const at::Tensor source = own.defined() ? own : required_value(values, "source").select(0, 0);
  const auto [index, weight] = routing_in(values, "select_in", s);
  const at::Tensor bank = layer_parameter(layer, "w_v").to(source.scalar_type());
  const at::Tensor all = at::einsum("sd,hedw->hsew", {source, bank});
  const at::Tensor places = index.unsqueeze(3).expand({-1, -1, -1, all.size(3)});
  a.values = all.gather(2, places) * weight.to(all.scalar_type()).unsqueeze(3);
  a.value_expert = index;
  if (const at::Tensor bias = find_layer_parameter(layer, "b_v"); bias.defined()) {
    const at::Tensor everywhere = bias.to(all.scalar_type()).view({heads, 1, 1, -1}).expand({-1, s, -1, -1});
    a.values = at::cat({a.values, everywhere}, 2);
    a.value_expert = at::cat({a.value_expert, at::full({heads, s, 1}, -1, at::kLong)}, 2);
  }
}

void set_outputs(Attribution& a, const LayerValues& values, const LayerInfo& layer) {
  const std::int64_t heads = a.weights.size(0), t = a.weights.size(1);
  const at::Tensor w = layer_parameter(layer, "w_o"), bias = find_layer_parameter(layer, "b_o");
  const at::Tensor head = at::arange(heads, at::kLong).view({-1, 1, 1});
  a.matrices = w.flatten(0, -3);  // [H, w, d]; with experts [H E, w, d]; of routed heads [E P, w, d]
  a.rest = at::zeros_like(a.out);
  if (layer.options.has_experts('o')) {
    std::tie(a.output_expert, a.matrix_weight) = routing_in(values, "select_out", t);
    a.matrix = a.output_expert + head * w.size(1);
  } else if (layer.options.projection->has_fixed_heads()) {
    a.matrix = head.expand({-1, t, -1});
    a.matrix_weight = at::ones(a.matrix.sizes(), a.out.options());
    a.output_expert = at::full_like(a.matrix, -1);
  } else {  // routed heads: [G, T, k] becomes [G k, T, 1], one row per slot, and P heads of each: [P G k, T, 1]
    const auto [index, weight] = routing_in(values, "select", t);
    const auto slots = [](const at::Tensor& routed) { return routed.transpose(1, 2).flatten(0, 1).unsqueeze(2); };
    const std::int64_t groups = index.size(0), p = layer.options.projection->heads_per_expert(layer.options);
    const at::Tensor group = at::arange(groups, index.options()).view({-1, 1, 1});
    const at::Tensor expert = slots(index + group * (w.size(0) / groups)), gate = slots(weight);
    a.matrix = (expert.unsqueeze(0) * p + at::arange(p, index.options()).view({-1, 1, 1, 1})).flatten(0, 1);
    a.matrix_weight = gate.repeat({p, 1, 1});
    a.output_expert = expert.repeat({p, 1, 1});
    if (bias.defined()) {
      a.rest = (bias.index({expert.squeeze(2)}) * gate).sum(0);
    }
    if (const at::Tensor shared = find_layer_parameter(layer, "b_out"); shared.defined()) {
      a.rest = a.rest + shared;
    }
    return;
  }
  if (bias.defined()) {
    a.rest = bias.expand_as(a.out);
  }
}

// `stage` is an index into the stages that the layer has.
CompositionTerms composition_terms(const LayerValues& values, const LayerInfo& layer, const char* name,
                                   std::int64_t stage) {
  const at::Tensor query = required_value(values, "query_terms").select(0, 0).select(1, stage);  // [T, 2, H, H]
  const at::Tensor key = required_value(values, "key_terms").select(0, 0).select(1, stage);
  const std::int64_t heads = query.size(2);
  CompositionTerms terms;
  const auto add = [&](const char* term, const at::Tensor& map) {
    if (map.any().item<bool>()) {
      terms.names.emplace_back(term);
      terms.maps.push_back(map);
    }
  };
  if (layer.options.of<config::CompositionOptions>().compose_skip) {
    add("own", at::eye(heads, query.options()));
  }
  if (const at::Tensor fixed = find_layer_parameter(layer, std::string(name) + ".wb"); fixed.defined()) {
    add("fixed map", at::block_diag(fixed.unbind()).to(query.scalar_type()));
  }
  add("query, low rank", query.select(1, 0).unsqueeze(1));
  add("query, gate", query.select(1, 1).unsqueeze(1));
  add("key, low rank", key.select(1, 0).unsqueeze(0));
  add("key, gate", key.select(1, 1).unsqueeze(0));
  return terms;
}

void set_decompositions(Attribution& a, const LayerValues& values, const LayerInfo& layer) {
  a.is_normalised = layer.options.score->is_normalised();
  a.causal = layer.causal;
  a.window = layer.window;
  a.has_mask = !layer.options.of<config::DotOptions>().mask.empty();
  a.responsibilities = optional_value(values, "responsibilities");
  std::int64_t stage = 0;
  if (composes_at(layer.options, "pre")) {
    a.pre = composition_terms(values, layer, "pre", stage++);
    a.scores = required_value(values, "scores").select(0, 0);
  }
  if (composes_at(layer.options, "post")) {
    a.post = composition_terms(values, layer, "post", stage);
  }
}

at::Tensor in_double(const at::Tensor& t) {
  return t.to(at::kDouble);
}

// Returns x [H, T, n, w] without its projection on each query token's own value if the layer is exclusive. The
// projection is symmetric, so this maps head outputs forwards and directions backwards.
at::Tensor exclude(const Attribution& a, const at::Tensor& x) {
  if (!a.exclusive) {
    return x;
  }
  const std::int64_t t = a.n_queries(), s = a.n_sources();
  const at::Tensor own = a.values.sum(2).narrow(1, s - t, t).to(x.scalar_type()).unsqueeze(2);  // [H, T, 1, w]
  const at::Tensor length = own.square().sum(-1, /*keepdim=*/true);
  return x - (x * own).sum(-1, /*keepdim=*/true) / length.masked_fill(length.eq(0.0), 1.0) * own;
}

}  // namespace

std::vector<std::string> attributed_values(const config::AttentionOptions& o) {
  std::vector<std::string> names = {"out", "gate", "head_norm", "value", "probs", "probs_composed", "responsibilities"};
  if (o.has_experts('v')) {
    names.insert(names.end(), {"source", "source_value"});
  } else {
    names.emplace_back("v");
  }
  for (const char* choice : {"select", "select_in", "select_out"}) {
    names.push_back(std::string(choice) + ".index");
    names.push_back(std::string(choice) + ".weight");
  }
  if (composes_at(o, "pre") || composes_at(o, "post")) {
    names.insert(names.end(), {"query_terms", "key_terms"});
  }
  if (composes_at(o, "pre")) {
    names.emplace_back("scores");
  }
  return names;
}

std::int64_t attributed_experts(const config::AttentionOptions& o) {
  return o.projection->has_fixed_heads() ? o.of<config::RoutingOptions>().n_experts
                                         : o.projection->all_heads(o) / o.projection->heads_per_expert(o);
}

namespace {

// Sets outputs that are only rounding to 0. In exclusive layers, this is the output of a token that sees only itself.
at::Tensor without_rounding(const at::Tensor& out) {
  constexpr double kRounding = 1e-6;
  const at::Tensor length = out.norm(2, {-1}, /*keepdim=*/true);
  return out.masked_fill(length.lt(length.max() * kRounding), 0.0);
}

}  // namespace

Attribution attribute(const LayerValues& values, const LayerInfo& layer) {
  const at::NoGradGuard no_grad;
  Attribution a;
  a.out = required_value(values, "out").select(0, 0);
  a.probs = required_value(values, "probs").select(0, 0);
  const at::Tensor composed = optional_value(values, "probs_composed");
  a.weights = composed.defined() ? composed : a.probs;
  a.gate = optional_value(values, "gate");
  if (const at::Tensor norm = optional_value(values, "head_norm"); norm.defined()) {
    a.gate = a.gate.defined() ? a.gate * norm : norm;
  }
  a.exclusive = layer.options.of<config::OutputGateOptions>().exclusive;
  a.out = a.exclusive ? without_rounding(a.out) : a.out;
  set_values(a, values, layer);
  set_outputs(a, values, layer);
  set_decompositions(a, values, layer);
  if (!a.post) {
    a.probs = a.weights;  // as changed by an observer
  }
  return a;
}

at::Tensor sum_of(const Attribution& a) {
  const at::NoGradGuard no_grad;
  at::Tensor o = in_double(a.weights).matmul(in_double(a.values.sum(2)));  // [H, T, w]
  o = exclude(a, o.unsqueeze(2)).squeeze(2);
  if (a.gate.defined()) {
    o = o * in_double(a.gate);
  }
  const std::int64_t t = o.size(1), w = o.size(2), n = a.matrices.size(0);
  const at::Tensor parts =
      (o.unsqueeze(2) * in_double(a.matrix_weight).unsqueeze(3)).permute({1, 0, 2, 3}).flatten(1, 2);
  const at::Tensor places = a.matrix.permute({1, 0, 2}).flatten(1).unsqueeze(2).expand({-1, -1, w});
  const at::Tensor by_matrix = at::zeros({t, n, w}, o.options()).scatter_add(1, places, parts);
  return by_matrix.flatten(1).matmul(in_double(a.matrices).flatten(0, 1)) + in_double(a.rest);
}

at::Tensor residual_of(const Attribution& a) {
  const at::NoGradGuard no_grad;
  const at::Tensor out = in_double(a.out), length = out.norm(2, {-1});
  return (sum_of(a) - out).norm(2, {-1}) / length.masked_fill(length.eq(0.0), 1.0);
}

at::Tensor readout(const Attribution& a, const at::Tensor& direction) {
  const at::NoGradGuard no_grad;
  const auto type = a.weights.scalar_type();
  const at::Tensor all = at::einsum("td,nwd->tnw", {direction.to(type), a.matrices.to(type)});
  const std::int64_t heads = a.matrix.size(0), ways = a.matrix.size(2), w = all.size(2);
  const at::Tensor places = a.matrix.permute({1, 0, 2}).flatten(1).unsqueeze(2).expand({-1, -1, w});
  at::Tensor chosen = all.gather(1, places).view({-1, heads, ways, w}).transpose(0, 1);  // [H, T, O, w]
  chosen = chosen * a.matrix_weight.to(type).unsqueeze(3);
  return exclude(a, a.gate.defined() ? chosen * a.gate.to(type).unsqueeze(2) : chosen);
}

at::Tensor sizes(const Attribution& a, const at::Tensor& readout, std::int64_t begin, std::int64_t count) {
  const at::NoGradGuard no_grad;
  const std::int64_t s = a.values.size(1), v = a.values.size(2), o = readout.size(2);
  const at::Tensor asked = readout.narrow(1, begin, count).flatten(1, 2);  // [H, count O, w]
  const at::Tensor met = asked.matmul(a.values.to(asked.scalar_type()).flatten(1, 2).transpose(1, 2));
  return met.view({-1, count, o, s, v}).permute({0, 1, 3, 4, 2}) *
         a.weights.narrow(1, begin, count).unsqueeze(3).unsqueeze(4);
}

namespace {

// Applies one term to the pair values [H, count, S] of queries begin .. begin + count.
at::Tensor apply_term(const at::Tensor& term, const at::Tensor& pairs, std::int64_t begin) {
  const at::Tensor map = term.to(pairs.scalar_type());
  if (map.dim() == 2) {
    return map.t().matmul(pairs.flatten(1)).view_as(pairs);
  }
  if (map.size(0) > 1 || map.size(1) == 1) {  // by query
    const at::Tensor own = map.narrow(0, begin, pairs.size(1)).squeeze(1);
    return pairs.permute({1, 2, 0}).matmul(own).permute({2, 0, 1});
  }
  return pairs.permute({2, 1, 0}).matmul(map.squeeze(0)).permute({2, 1, 0});
}

at::Tensor apply_all(const std::optional<CompositionTerms>& terms, const at::Tensor& pairs, std::int64_t begin) {
  if (!terms) {
    return pairs;
  }
  at::Tensor sum = at::zeros_like(pairs);
  for (const at::Tensor& map : terms->maps) {
    sum = sum + apply_term(map, pairs, begin);
  }
  return sum;
}

at::Tensor apply_each(const CompositionTerms& terms, const at::Tensor& pairs, std::int64_t begin) {
  std::vector<at::Tensor> results =
      transformed(terms.maps, [&](const at::Tensor& map) { return apply_term(map, pairs, begin); });
  return at::stack(results);
}

// The mask of queries begin .. begin + count, [count, S].
at::Tensor visible_keys(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const std::int64_t s = a.n_sources(), before = s - a.n_queries();
  const at::Tensor query = at::arange(begin, begin + count, at::kLong).unsqueeze(1) + before;
  const at::Tensor key = at::arange(s, at::kLong).unsqueeze(0);
  at::Tensor sees = a.causal ? key.le(query) : at::ones({count, s}, at::kBool);
  return a.window > 0 ? sees.logical_and(key.gt(query - a.window)) : sees;
}

// Computes the attention weights for modified scores. The layer's own scores `full` gave the weights `probs`. If the
// weights are a softmax that sums to less than 1 (a sink, an epsilon in the denominator), the missing share becomes the
// score of an additional key.
class WeightsOfScores {
 public:
  WeightsOfScores(const Attribution& a, const at::Tensor& full, const at::Tensor& probs, std::int64_t begin)
      : is_normalised_(a.is_normalised), hidden_(visible_keys(a, begin, full.size(1)).logical_not()) {
    hidden_ = a.has_mask ? hidden_.logical_or(probs.eq(0.0)) : hidden_;
    if (!is_normalised_) {
      log_keys_ = hidden_.logical_not().sum(-1, /*keepdim=*/true).clamp_min(1).to(full.scalar_type()).log();
      return;
    }
    const at::Tensor sum = probs.sum(-1, /*keepdim=*/true), missing = 1.0 - sum;
    extra_ = masked(full).logsumexp(at::IntArrayRef{-1}, /*keepdim=*/true) + (missing / sum).clamp_min(0.0).log();
    extra_ = extra_.masked_fill(missing.lt(kRounding), -std::numeric_limits<double>::infinity());
    extra_ = extra_.masked_fill(sum.eq(0.0), 0.0);  // no key is visible
  }

  at::Tensor operator()(const at::Tensor& scores) const {
    if (!is_normalised_) {
      return (scores - log_keys_).sigmoid().masked_fill(hidden_, 0.0);
    }
    return at::cat({masked(scores), extra_}, -1).softmax(-1).slice(-1, 0, -1);
  }

 private:
  static constexpr double kRounding = 1e-5;  // tolerance of the sum of weights, in float32

  at::Tensor masked(const at::Tensor& scores) const {
    return scores.masked_fill(hidden_, -std::numeric_limits<double>::infinity());
  }

  bool is_normalised_;
  at::Tensor hidden_, log_keys_, extra_;
};

Decomposition before_softmax(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const at::Tensor terms = apply_each(*a.pre, a.scores.narrow(1, begin, count), begin);
  const at::Tensor probs = a.probs.narrow(1, begin, count);
  const WeightsOfScores weights_of(a, terms.sum(0), probs, begin);
  std::vector<at::Tensor> changes;
  at::Tensor scores = at::zeros_like(probs), before = at::zeros_like(probs);
  for (std::int64_t term = 0; term < terms.size(0); ++term) {
    scores = scores + terms[term];
    const at::Tensor now = term + 1 < terms.size(0) ? weights_of(scores) : probs;
    changes.push_back(apply_all(a.post, now - before, begin));
    before = now;
  }
  return {"before the softmax", a.pre->names, at::stack(changes)};
}

}  // namespace

Decomposition decompose_scores(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const at::NoGradGuard no_grad;
  if (!a.pre) {
    return {"scores", {}, {}};
  }
  return {"scores", a.pre->names, apply_each(*a.pre, a.scores.narrow(1, begin, count), begin)};
}

std::vector<Decomposition> decompose_weights(const Attribution& a, std::int64_t begin, std::int64_t count) {
  const at::NoGradGuard no_grad;
  std::vector<Decomposition> all;
  const at::Tensor probs = a.probs.narrow(1, begin, count);
  if (a.pre) {
    all.push_back(before_softmax(a, begin, count));
  }
  if (a.post) {
    all.push_back({"after the softmax", a.post->names, apply_each(*a.post, probs, begin)});
  }
  if (a.responsibilities.defined()) {
    Decomposition components{"components", {}, {}};
    std::vector<at::Tensor> parts;
    for (std::int64_t r = 0; r < a.responsibilities.size(0); ++r) {
      components.terms.push_back("component " + std::to_string(r + 1));
      parts.push_back(apply_all(a.post, probs * a.responsibilities[r].narrow(1, begin, count), begin));
    }
    components.weights = at::stack(parts);
    all.push_back(std::move(components));
  }
  return all;
}

}  // namespace headroom::inspector
