// Attention layers and expert MLPs, each alone.
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <iterator>

#include "engine/models/vocabulary_layers.h"
#include "headroom/core/error.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/mlp.h"
#include "headroom/nn/routing.h"
#include "runners.h"

namespace headroom::golden {
namespace {

nn::Builder builder(nn::Parameters& parameters, const at::Tensor& like) {
  return {parameters, at::make_generator<at::CPUGeneratorImpl>(std::uint64_t{1}), like.options().requires_grad(false)};
}

bool pads_queries(const Json& options) {
  if (is_null(options, "padding")) {
    return false;
  }
  require_among(options.at("padding"), "queries", {"computed", "zero"});
  return options.at("padding").value("queries", "") == "zero";
}

nn::AttentionInput attention_input(const Case& c, Result& result) {
  nn::AttentionInput input;
  input.x = leaf(c, "in.x", result);
  if (c.has("in.mem")) {
    input.source = at::cat({leaf(c, "in.mem", result), input.x}, 1);
  } else if (c.has("in.source")) {
    input.source = leaf(c, "in.source", result);
    if (c.has("in.source_value")) {
      input.source_value = leaf(c, "in.source_value", result);
    }
  }
  input.valid_keys = valid_keys(c, c.options);
  if (pads_queries(c.options)) {
    input.valid_queries = c.at("in.mask_query").ne(0);
  }
  if (c.has("in.noise")) {
    input.router_noise = c.at("in.noise");
  }
  if (c.has("in.slot_index")) {
    input.router_slots = c.at("in.slot_index");
  }
  return input;
}

// The losses that a layer reported, under the cases' names, and their sum with the case's weights.
void add_losses(const Case& c, std::map<std::string, at::Tensor> losses, Result& result) {
  if (const auto entropy = losses.find("routing_entropy"); entropy != losses.end()) {
    losses["entropy"] = entropy->second;
    losses.erase(entropy);
  }
  const Json weights = c.options.value("losses", Json());
  at::Tensor total;
  for (const auto& [name, value] : losses) {
    result.values["aux." + name] = value;
    if (weights.is_object() && weights.contains(name)) {
      const at::Tensor term = value * weights.at(name).get<double>();
      total = total.defined() ? total + term : term;
    }
  }
  if (total.defined()) {
    result.values["aux.total"] = total;
  }
}

// What a padded query chose means nothing: only the others are compared, and its weights are expected to be 0.
void disregard_padded(const Case& c, const std::optional<at::Tensor>& valid, Result& result) {
  const auto index = result.values.find("mid.select.index");
  if (valid && index != result.values.end() && c.has("mid.select.index")) {
    const at::Tensor& expected = c.at("mid.select.index");
    index->second = at::where(valid->view({-1, 1}), index->second.view({-1, expected.size(2)}),
                              expected.view({-1, expected.size(2)}));
  }
  for (const std::string_view name : nn::kPairValues) {
    const auto found = result.values.find(fmt::format("mid.{}", name));
    if (valid && found != result.values.end()) {
      found->second = found->second.masked_fill(valid->logical_not().unsqueeze(1).unsqueeze(3), 0.0);
    }
  }
}

// A router without its layer: routing and losses.
std::vector<Result> run_router(const Case& c) {
  Result result;
  const at::Tensor x = leaf(c, "in.x", result), select = leaf(c, "param.select", result);
  const config::AttentionOptions o = [&] {
    Case with_head = c;
    with_head.dims["d_head"] = 1;
    return attention_options(with_head, "moa", c.options);
  }();
  nn::RoutingOptions choice{.n_heads = 1, .n_experts = o.n_experts, .top_k = o.top_k, .gate = o.gate};
  if (pads_queries(c.options)) {
    choice.valid = c.at("in.mask_query").ne(0).reshape({-1});
  }
  nn::Context context;
  std::map<std::string, at::Tensor> losses;
  nn::Recorder recorder = recorder_of(c, Implementation::reference);
  context.losses = &losses;
  context.observer = &recorder;
  at::Tensor score = x.reshape({-1, x.size(2)}).mm(select);
  if (o.noisy_routing) {
    const at::Tensor spread = at::softplus(x.reshape({-1, x.size(2)}).mm(leaf(c, "param.select_noise", result)));
    score =
        score + c.at("in.noise").reshape(score.sizes()) * (spread + c.options.at("noise").at("floor").get<double>());
  }
  nn::Routing routing = nn::route_scores(score.unsqueeze(1), choice, context, "select");
  if (c.has("in.slot_index")) {
    routing = routing.in_order_of(c.at("in.slot_index").reshape(routing.index.sizes()));
  }
  nn::add_routing_losses(routing, choice.valid, x.size(0), o, context);
  add_losses(c, std::move(losses), result);
  add_recorded(recorder, result);
  disregard_padded(c, choice.valid, result);
  return {std::move(result)};
}

// What a layer shows of these values, call by call, in the order of the rows.
struct RowValues : nn::Observer {
  std::map<std::string, std::vector<at::Tensor>, std::less<>> rows;
  explicit RowValues(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      rows[name];
    }
  }
  bool wants(std::string_view name) const override { return rows.contains(name); }
  at::Tensor observe(std::string_view name, at::Tensor value) override {
    rows.find(name)->second.push_back(value);
    return value;
  }
};

// What is cached besides keys and values: the names of the case's "state.<name>_after".
std::vector<std::string> cached_names(const Case& c) {
  std::vector<std::string> names;
  for (const auto& [tensor, value] : c.tensors) {
    if (tensor.starts_with("state.") && tensor.ends_with("_after")) {
      names.push_back(tensor.substr(6, tensor.size() - 12));
    }
  }
  return names;
}

// The first tokens at once, then one by one, each kept value computed once. A layer shows what its cache holds under
// cached_names(): token t is expected in slot t mod slots.
void decode_attention(const Case& c, const nn::Attention& attention, const at::Tensor& x, const nn::Context& given,
                      Result& result) {
  const Json& decode = c.options.at("decode");
  const auto prefill = decode.at("prefill").get<std::int64_t>(), steps = decode.at("steps").get<std::int64_t>(),
             slots = decode.at("slots").get<std::int64_t>();
  std::vector<nn::AttentionCache> caches(static_cast<std::size_t>(x.size(0)),
                                         nn::AttentionCache(slots, /*sliding=*/true));
  std::vector<nn::AttentionCache*> each;
  std::transform(caches.begin(), caches.end(), std::back_inserter(each), [](auto& cache) { return &cache; });
  const std::vector<std::string> names = cached_names(c);
  std::vector<at::Tensor> rows;
  std::map<std::string, at::Tensor> held;
  std::map<std::string, std::vector<at::Tensor>> fresh;
  nn::Context context = given;
  for (std::int64_t at = 0; at < prefill + steps;) {
    const std::int64_t n = at == 0 ? prefill : 1;
    nn::AttentionInput step;
    step.x = x.narrow(1, at, n);
    step.caches = each;
    RowValues seen(names);
    context.observer = &seen;
    rows.push_back(attention(step, context));
    for (const std::string& name : names) {
      held[name] = at::cat(seen.rows.at(name));
      fresh[name].push_back(held[name].narrow(1, held[name].size(1) - n, n));
    }
    at += n;
  }
  result.values["out"] = at::cat(rows, 1);
  const std::int64_t total = prefill + steps;
  for (const std::string& name : names) {
    at::Tensor after = at::zeros_like(c.at("state." + name + "_after"));
    for (std::int64_t token = total - std::min(total, slots); token < total; ++token) {
      after.select(1, token % slots).copy_(held[name].select(1, held[name].size(1) - (total - token)));
    }
    result.values["state." + name + "_after"] = after;
    result.values["mid." + name] = at::cat(fresh[name], 1);
  }
}

}  // namespace

bool masks_keys(const Json& attention) {
  if (!attention.contains("padding")) {
    return true;
  }
  const Json& padding = attention.at("padding");
  return padding.is_object() && padding.value("keys", true);
}

std::optional<at::Tensor> valid_keys(const Case& c, const Json& attention) {
  return c.has("in.mask") && masks_keys(attention) ? std::optional(c.at("in.mask").ne(0)) : std::nullopt;
}

std::vector<Result> run_attention(const Case& c, const nn::Context& given) {
  if (c.options.value("module", "attention") == "router") {
    return run_router(c);
  }
  Result result;
  const nn::AttentionInput input = attention_input(c, result);
  nn::Parameters parameters;
  const nn::Attention attention(attention_options(c, c.family, c.options), place_of(c, c.options),
                                builder(parameters, input.x));
  load_parameters(c, parameters, result);
  nn::Context context = given;
  // A prior that replaces itself does so in training only; there is no dropout here.
  context.training = c.has("state.prior_before");
  std::map<std::string, at::Tensor> losses;
  nn::BufferUpdates updates;
  context.losses = &losses;
  context.updates = &updates;
  if (c.options.contains("decode") && c.options.at("decode").is_object()) {
    decode_attention(c, attention, input.x, context, result);
    return {std::move(result)};
  }
  nn::Recorder recorder = recorder_of(c, given.implementation);
  context.observer = &recorder;
  result.values["out"] = attention(input, context);
  add_losses(c, std::move(losses), result);
  add_recorded(recorder, result);
  disregard_padded(c, input.valid_queries, result);
  if (c.has("state.prior_after")) {
    nn::apply(updates);
    result.values["state.prior_after"] = parameters.stored().back().tensor;
  }
  return {std::move(result)};
}

std::vector<Result> run_expert_ffn(const Case& c, const nn::Context& given) {
  Result result;
  const at::Tensor x = leaf(c, "in.x", result);
  nn::Parameters parameters;
  Json ffn = c.options;
  ffn["kind"] = "experts";
  const auto mlp = nn::make_mlp(mlp_options(c, ffn), {.d_model = c.dim("d_model")}, builder(parameters, x));
  load_parameters(c, parameters, result);
  nn::Context context = given;
  std::map<std::string, at::Tensor> losses;
  nn::Recorder recorder = recorder_of(c, given.implementation);
  context.observer = &recorder;
  context.losses = &losses;
  result.values["out"] = (*mlp)(x, 0.0, context);
  add_losses(c, std::move(losses), result);
  add_recorded(recorder, result);
  return {std::move(result)};
}

std::vector<Result> run_adaptive_softmax(const Case& c, const nn::Context& context) {
  Result result;
  const at::Tensor x = leaf(c, "in.x", result);
  models::AdaptiveSoftmax softmax;
  softmax.w = leaf(c, "param.w", result);
  softmax.b = leaf(c, "param.b", result);
  softmax.w_cluster = leaf(c, "param.w_cluster", result);
  softmax.b_cluster = leaf(c, "param.b_cluster", result);
  softmax.cutoffs = c.options.at("cutoffs").get<std::vector<std::int64_t>>();
  require_among(c.options, "cluster_order", {"reversed", "forward"});
  softmax.reversed = c.options.at("cluster_order") == "reversed";
  result.values["out"] = softmax.negative_log_likelihood(x, c.at("in.target"), context);
  return {std::move(result)};
}

Runner find_runner(const std::string& family) {
  static const std::map<std::string, Runner> kRunners = {{"expert_ffn", run_expert_ffn},
                                                         {"block", run_block},
                                                         {"language_model", run_language_model},
                                                         {"classifier", run_classifier},
                                                         {"adaptive_softmax", run_adaptive_softmax}};
  if (is_attention_family(family)) {
    return run_attention;
  }
  const auto found = kRunners.find(family);
  return found == kRunners.end() ? nullptr : found->second;
}

}  // namespace headroom::golden
