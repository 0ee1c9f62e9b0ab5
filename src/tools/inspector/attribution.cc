#include "attribution.h"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::inspect {
namespace {

// Whether heads mix at a stage.
bool mixes_at(const config::AttentionOptions& o, const char* stage) {
  return o.composes(stage) && !o.composition->tensors(o, 1).empty();
}

at::Tensor find_own_parameter(const AttentionFacts& facts, std::string_view name) {
  const std::string full = facts.scope + std::string(name);
  for (const nn::Parameter& parameter : facts.parameters.in_creation_order()) {
    if (parameter.name == full) {
      return parameter.tensor.detach();
    }
  }
  return {};
}

at::Tensor own_parameter(const AttentionFacts& facts, std::string_view name) {
  at::Tensor found = find_own_parameter(facts, name);
  if (!found.defined()) {
    fail("attribution: the model has no parameter {}{}", facts.scope, name);
  }
  return found;
}

const at::Tensor& observed_value(const LayerValues& values, std::string_view name) {
  const auto found = values.find(name);
  if (found == values.end()) {
    fail("attribution: {} was not observed", name);
  }
  return found->second;
}

at::Tensor seen_value(const LayerValues& values, std::string_view name) {
  const auto found = values.find(name);
  return found == values.end() ? at::Tensor() : found->second.select(0, 0);
}

// Choices of the first row's n tokens, [H, n, K].
std::pair<at::Tensor, at::Tensor> chosen_in(const LayerValues& values, const std::string& name, std::int64_t n) {
  const auto rows = [&](const char* what) {
    return observed_value(values, name + what).narrow(0, 0, n).transpose(0, 1);
  };
  return {rows(".index"), rows(".weight")};
}

at::Tensor to_heads(const at::Tensor& grouped, std::int64_t heads) {
  return grouped.size(0) == heads ? grouped : grouped.repeat_interleave(heads / grouped.size(0), 0);
}

void add_values(Attribution& a, const LayerValues& values, const AttentionFacts& facts) {
  const std::int64_t heads = a.weights.size(0), s = a.weights.size(2);
  if (!facts.options.has_experts('v')) {
    const at::Tensor latent = seen_value(values, "latent");
    const at::Tensor v = latent.defined()
                             ? at::einsum("sr,rhw->hsw", {latent, own_parameter(facts, "w_v").to(latent.scalar_type())})
                             : observed_value(values, "v").select(0, 0);
    a.values = to_heads(v, heads).unsqueeze(2);
    a.value_expert = at::full({heads, s, 1}, -1, at::kLong);
    return;
  }
  const at::Tensor source = observed_value(values, "source").select(0, 0);
  const auto [index, weight] = chosen_in(values, "select_in", s);
  const at::Tensor bank = own_parameter(facts, "w_v").to(source.scalar_type());
  const at::Tensor all = at::einsum("sd,hedw->hsew", {source, bank});
  const at::Tensor places = index.unsqueeze(3).expand({-1, -1, -1, all.size(3)});
  a.values = all.gather(2, places) * weight.to(all.scalar_type()).unsqueeze(3);
  a.value_expert = index;
  if (const at::Tensor bias = find_own_parameter(facts, "b_v"); bias.defined()) {
    const at::Tensor everywhere = bias.to(all.scalar_type()).view({heads, 1, 1, -1}).expand({-1, s, -1, -1});
    a.values = at::cat({a.values, everywhere}, 2);
    a.value_expert = at::cat({a.value_expert, at::full({heads, s, 1}, -1, at::kLong)}, 2);
  }
}

void add_outputs(Attribution& a, const LayerValues& values, const AttentionFacts& facts) {
  const std::int64_t heads = a.weights.size(0), t = a.weights.size(1);
  const at::Tensor w = own_parameter(facts, "w_o"), bias = find_own_parameter(facts, "b_o");
  const at::Tensor head = at::arange(heads, at::kLong).view({-1, 1, 1});
  a.matrices = w.flatten(0, -3);  // [H, w, d], of a bank [H E, w, d], of routed heads [E, w, d]
  a.rest = at::zeros_like(a.out);
  if (facts.options.has_experts('o')) {
    std::tie(a.output_expert, a.matrix_weight) = chosen_in(values, "select_out", t);
    a.matrix = a.output_expert + head * w.size(1);
  } else if (facts.options.projection->has_fixed_heads()) {
    a.matrix = head.expand({-1, t, -1});
    a.matrix_weight = at::ones(a.matrix.sizes(), a.out.options());
    a.output_expert = at::full_like(a.matrix, -1);
  } else {  // a token's slots: [1, T, k] becomes [k, T, 1]
    const auto [index, weight] = chosen_in(values, "select", t);
    a.matrix = index.permute({2, 1, 0});
    a.matrix_weight = weight.permute({2, 1, 0});
    a.output_expert = a.matrix;
    if (bias.defined()) {
      a.rest = (bias.index({index[0]}) * weight[0].unsqueeze(2)).sum(1);
    }
    return;
  }
  if (bias.defined()) {
    a.rest = bias.expand_as(a.out);
  }
}

// One stage of the composition; `stage` counts those that there are.
ComposedBy composed_by(const LayerValues& values, const AttentionFacts& facts, const char* name, std::int64_t stage) {
  const at::Tensor query = observed_value(values, "query_terms").select(0, 0).select(1, stage);  // [T, 2, H, H]
  const at::Tensor key = observed_value(values, "key_terms").select(0, 0).select(1, stage);
  const std::int64_t heads = query.size(2);
  ComposedBy stages;
  const auto add = [&](const char* term, const at::Tensor& map) {
    if (map.any().item<bool>()) {
      stages.names.emplace_back(term);
      stages.maps.push_back(map);
    }
  };
  if (facts.options.compose_skip) {
    add("own", at::eye(heads, query.options()));
  }
  if (const at::Tensor fixed = find_own_parameter(facts, std::string(name) + ".wb"); fixed.defined()) {
    add("fixed map", at::block_diag(fixed.unbind()).to(query.scalar_type()));
  }
  add("query, low rank", query.select(1, 0).unsqueeze(1));
  add("query, gate", query.select(1, 1).unsqueeze(1));
  add("key, low rank", key.select(1, 0).unsqueeze(0));
  add("key, gate", key.select(1, 1).unsqueeze(0));
  return stages;
}

void add_splits(Attribution& a, const LayerValues& values, const AttentionFacts& facts) {
  a.is_normalised = facts.options.score->is_normalised();
  a.causal = facts.causal;
  a.window = facts.window;
  a.responsibilities = seen_value(values, "responsibilities");
  std::int64_t stage = 0;
  if (mixes_at(facts.options, "pre")) {
    a.pre = composed_by(values, facts, "pre", stage++);
    a.scores = observed_value(values, "scores").select(0, 0);
  }
  if (mixes_at(facts.options, "post")) {
    a.post = composed_by(values, facts, "post", stage);
  }
}

at::Tensor in_double(const at::Tensor& t) {
  return t.to(at::kDouble);
}

}  // namespace

std::vector<std::string> attributed_values(const config::AttentionOptions& o) {
  std::vector<std::string> names = {"out", "gate", "latent", "probs", "probs_composed", "responsibilities"};
  if (o.has_experts('v')) {
    names.emplace_back("source");
  } else {
    names.emplace_back("v");
  }
  for (const char* choice : {"select", "select_in", "select_out"}) {
    names.push_back(std::string(choice) + ".index");
    names.push_back(std::string(choice) + ".weight");
  }
  if (mixes_at(o, "pre") || mixes_at(o, "post")) {
    names.insert(names.end(), {"query_terms", "key_terms"});
  }
  if (mixes_at(o, "pre")) {
    names.emplace_back("scores");
  }
  return names;
}

Attribution attribute(const LayerValues& values, const AttentionFacts& facts) {
  const at::NoGradGuard no_grad;
  Attribution a;
  a.out = observed_value(values, "out").select(0, 0);
  a.probs = observed_value(values, "probs").select(0, 0);
  const at::Tensor composed = seen_value(values, "probs_composed");
  a.weights = composed.defined() ? composed : a.probs;
  a.gate = seen_value(values, "gate");
  add_values(a, values, facts);
  add_outputs(a, values, facts);
  add_splits(a, values, facts);
  if (!a.post) {
    a.probs = a.weights;  // what an observer makes of them counts
  }
  return a;
}

at::Tensor sum_of(const Attribution& a) {
  const at::NoGradGuard no_grad;
  at::Tensor o = in_double(a.weights).matmul(in_double(a.values.sum(2)));  // [H, T, w]
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
  return a.gate.defined() ? chosen * a.gate.to(type).unsqueeze(2) : chosen;
}

at::Tensor sizes(const Attribution& a, const at::Tensor& readout, std::int64_t begin, std::int64_t count) {
  const at::NoGradGuard no_grad;
  const std::int64_t s = a.values.size(1), v = a.values.size(2), o = readout.size(2);
  const at::Tensor asked = readout.narrow(1, begin, count).flatten(1, 2);  // [H, count O, w]
  const at::Tensor met = asked.matmul(a.values.to(asked.scalar_type()).flatten(1, 2).transpose(1, 2));
  return met.view({-1, count, o, s, v}).permute({0, 1, 3, 4, 2}) *
         a.weights.narrow(1, begin, count).unsqueeze(3).unsqueeze(4);
}

}  // namespace headroom::inspect
