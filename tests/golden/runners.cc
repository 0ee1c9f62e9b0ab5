// Runners of attention layers, expert MLPs, the adaptive softmax, blocks, language models over consecutive chunks, and
// classifiers.
#include <ATen/CPUGeneratorImpl.h>

#include <iterator>

#include "case.h"
#include "engine/models/block.h"
#include "engine/models/vocabulary_layers.h"
#include "headroom/models/classifier.h"
#include "headroom/models/language_model.h"
#include "headroom/nn/mlp.h"

namespace headroom::golden {
namespace {

nn::Builder builder(nn::Parameters& parameters, const at::Tensor& like) {
  return {parameters, nn::ParameterSource(1, like.options().requires_grad(false))};
}

bool pads_queries(const Json& options) {
  if (is_null(options, "padding")) {
    return false;
  }
  require_among(options.at("padding"), "queries", {"computed", "zero"});
  return options.at("padding").value("queries", "") == "zero";
}

// Returns whether the padding mask hides keys.
bool masks_keys(const Json& attention) {
  if (!attention.contains("padding")) {
    return true;
  }
  const Json& padding = attention.at("padding");
  return padding.is_object() && padding.value("keys", true);
}

// Returns the mask of valid keys [B, S], or nullopt if no keys are masked.
std::optional<at::Tensor> valid_keys(const Case& c, const Json& attention) {
  return c.has("in.mask") && masks_keys(attention) ? std::optional(c.at("in.mask").ne(0)) : std::nullopt;
}

nn::AttentionInput attention_input(const Case& c, CaseResult& result) {
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

// Adds a layer's losses under the case's names, and their sum with the case's weights.
void add_losses(const Case& c, std::map<std::string, at::Tensor> losses, CaseResult& result) {
  if (const auto entropy = losses.find("routing_entropy"); entropy != losses.end()) {
    losses["entropy"] = entropy->second;
    losses.erase(entropy);
  }
  if (const auto balance = losses.find("switch"); c.family == "moh" && balance != losses.end()) {
    losses["balance"] = balance->second * static_cast<double>(c.dim("k"));
    losses.erase(balance);
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

// Makes two losses of routed heads count padding, as the cases and MoA's released code do.
void count_padding(const Case& c, const nn::Recorder& recorder, std::map<std::string, at::Tensor>& losses) {
  if (losses.contains("z") && recorder.values.contains("select.score")) {
    losses["z"] = nn::z_loss(recorder.at("select.score").flatten(0, -2));
  }
  if (losses.contains("switch_slots") && recorder.values.contains("select.prob") && c.has("in.slot_index")) {
    const at::Tensor slots = c.at("in.slot_index").flatten(0, -2).to(at::kLong);
    losses["switch_slots"] =
        nn::switch_loss(recorder.at("select.prob").flatten(0, -2), nn::slot_counts(slots, c.dim("B"), c.dim("E")));
  }
}

// The routing of padded queries is undefined and not compared; their attention weights must be 0.
void disregard_padded(const Case& c, const std::optional<at::Tensor>& valid, CaseResult& result) {
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

// Runs a router without its layer: returns the routed experts and the losses.
std::vector<CaseResult> run_router(const Case& c) {
  CaseResult result;
  const at::Tensor x = leaf(c, "in.x", result), select = leaf(c, "param.select", result);
  const config::AttentionOptions o = [&] {
    Case with_head = c;
    with_head.dims["d_head"] = 1;
    return attention_options(with_head, "moa", c.options);
  }();
  nn::RoutingOptions choice = nn::routing_options(o, 1);
  if (pads_queries(c.options)) {
    choice.valid = c.at("in.mask_query").ne(0).reshape({-1});
  }
  nn::Context context;
  std::map<std::string, at::Tensor> losses;
  nn::Recorder recorder = recorder_of(c, Implementation::reference);
  context.losses = &losses;
  context.observer = &recorder;
  at::Tensor score = x.reshape({-1, x.size(2)}).mm(select);
  if (o.of<config::RoutedHeadOptions>().noisy_routing) {
    const at::Tensor spread = at::softplus(x.reshape({-1, x.size(2)}).mm(leaf(c, "param.select_noise", result)));
    score =
        score + c.at("in.noise").reshape(score.sizes()) * (spread + c.options.at("noise").at("floor").get<double>());
  }
  nn::Routing routing = nn::route_scores(score.unsqueeze(1), choice, context, "select");
  if (c.has("in.slot_index")) {
    routing = routing.in_order_of(c.at("in.slot_index").reshape(routing.index.sizes()));
  }
  nn::add_routing_losses(routing, choice.valid, x.size(0), o.of<config::RoutedHeadOptions>(), context);
  count_padding(c, recorder, losses);
  add_losses(c, std::move(losses), result);
  add_recorded(recorder, result);
  disregard_padded(c, choice.valid, result);
  return {std::move(result)};
}

// Records every call for some values, in order: one call for each row of a batch.
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

// Returns the names of the values that a layer caches besides keys and values, from "state.<name>_after".
std::vector<std::string> cached_names(const Case& c) {
  std::vector<std::string> names;
  for (const auto& [tensor, value] : c.tensors) {
    if (tensor.starts_with("state.") && tensor.ends_with("_after")) {
      names.push_back(tensor.substr(6, tensor.size() - 12));
    }
  }
  return names;
}

// Decodes the prefix in one call, then one token at a time. Also returns the cached values, with token t in slot t mod
// slots.
void decode_attention(const Case& c, const nn::Attention& attention, const at::Tensor& x, const nn::Context& given,
                      CaseResult& result) {
  const Json& decode = c.options.at("decode");
  const auto prefill = decode.at("prefill").get<std::int64_t>(), steps = decode.at("steps").get<std::int64_t>(),
             slots = decode.at("slots").get<std::int64_t>();
  std::vector<nn::AttentionCache> caches(static_cast<std::size_t>(x.size(0)),
                                         nn::AttentionCache(slots, /*sliding=*/true));
  std::vector<nn::AttentionCache*> each;
  std::ranges::transform(caches, std::back_inserter(each), [](auto& cache) { return &cache; });
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
    RowValues observed(names);
    context.observer = &observed;
    rows.push_back(attention(step, context));
    for (const std::string& name : names) {
      held[name] = at::cat(observed.rows.at(name));
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

// The kind of model determines whether attention is causal, and the case must agree.
void require_causal(const Json& attention, bool causal) {
  if (!is_null(attention, "causal") && flag(attention, "causal") != causal) {
    user_error("options.attention.causal: must be {} for this kind of model", causal);
  }
}

config::ModelOptions language_model_options(const Case& c) {
  config::ModelOptions model;
  model.vocabulary_size = c.dim("V");
  model.context_length = c.dim("T");
  require_among(c.options, "memory", {"none", "previous_chunk"});
  require_causal(c.options.at("attention"), true);
  model.memory_length = c.options.at("memory") == "previous_chunk" ? c.dim("T") : 0;
  model.tied_embeddings = !c.has("param.head.w");
  model.head_bias = c.has("param.head.b");
  set_stack(c, c.options, model);
  return model;
}

std::vector<CaseResult> run_attention(const Case& c, const nn::Context& given) {
  if (c.options.value("module", "attention") == "router") {
    return run_router(c);
  }
  CaseResult result;
  const nn::AttentionInput input = attention_input(c, result);
  nn::Parameters parameters;
  const nn::Attention attention(attention_options(c, c.family, c.options), place_of(c, c.options),
                                builder(parameters, input.x));
  load_parameters(c, parameters, result);
  nn::Context context = given;
  // Training mode updates the prior. There is no dropout, so training mode has no other effect.
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
  count_padding(c, recorder, losses);
  add_losses(c, std::move(losses), result);
  add_recorded(recorder, result);
  disregard_padded(c, input.valid_queries, result);
  if (c.has("state.prior_after")) {
    nn::apply(updates);
    result.values["state.prior_after"] = parameters.stored().back().tensor;
  }
  return {std::move(result)};
}

std::vector<CaseResult> run_expert_ffn(const Case& c, const nn::Context& given) {
  CaseResult result;
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

std::vector<CaseResult> run_adaptive_softmax(const Case& c, const nn::Context& context) {
  CaseResult result;
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

std::vector<CaseResult> run_block(const Case& c, const nn::Context& given) {
  CaseResult result;
  const at::Tensor x = leaf(c, "in.x", result);
  config::ModelOptions options;
  set_stack(c, c.options, options);
  nn::Parameters parameters;
  const nn::Builder build(parameters, nn::ParameterSource(1, x.options().requires_grad(false)));
  const models::Block block(options, place_of(c, c.options.at("attention")), build);
  load_parameters(c, parameters, result);
  models::BlockInput input;
  input.h = x;
  if (c.has("in.mem")) {
    input.memory = leaf(c, "in.mem", result);
  }
  input.valid_keys = valid_keys(c, c.options.at("attention"));
  nn::Context context = given;
  std::map<std::string, at::Tensor> losses;
  context.losses = &losses;
  result.values["out"] = block(input, context);
  add_losses(c, std::move(losses), result);
  return {std::move(result)};
}

std::vector<CaseResult> run_classifier(const Case& given, const nn::Context& context) {
  // Drops the rows of the position table beyond the text, because output_scale "inv_sqrt_length" uses the text's
  // length.
  Case c = given;
  c.tensors["param.position"] = c.at("param.position").narrow(0, 0, c.dim("T"));
  CaseResult result;
  config::ModelOptions options;
  options.vocabulary_size = c.dim("V");
  options.context_length = c.dim("T");
  set_stack(c, c.options, options);
  options.kind = config::ModelKind::classifier;
  options.attention.position = "learned";
  options.n_classes = c.dim("C");
  options.d_head_hidden = c.dim("d_hidden");
  require_among(c.options, "features", {"single", "pair"});
  require_among(c.options, "pooling", {"mean_over_length"});
  require_causal(c.options.at("attention"), false);
  require_among(c.options.at("attention"), "position", {"none"});  // the case has param.position instead
  if (!masks_keys(c.options.at("attention"))) {
    user_error("options.attention.padding: must mask keys for a classifier");
  }
  options.paired = c.options.at("features") == "pair";
  options.padding_token = c.options.at("padding_token").get<std::int64_t>();
  options.head_activation = activation_of(c.options, "head_activation");
  models::Classifier model(options, /*seed=*/1, c.at("param.embed").options());
  load_parameters(c, model.parameters(), result);
  const at::Tensor second = options.paired ? c.at("in.tokens_2") : at::Tensor();
  const at::Tensor logits = model.logits(c.at("in.tokens"), second, context);
  result.values["out.logits"] = logits;
  result.values["out.loss"] = at::cross_entropy_loss(logits, c.at("in.label"));
  return {std::move(result)};
}

std::vector<CaseResult> run_language_model(const Case& c, const nn::Context& given) {
  CaseResult parameters;
  models::LanguageModel model(language_model_options(c), /*seed=*/1, c.at("param.embed").options());
  load_parameters(c, model.parameters(), parameters);
  const std::int64_t t = c.dim("T"), chunks = c.options.at("chunks").get<std::int64_t>();
  models::Memory memory;
  std::vector<CaseResult> results;
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    CaseResult result = parameters;
    result.prefix = fmt::format("chunk{}.", chunk);
    const at::Tensor tokens = c.at("in.tokens").narrow(1, chunk * t, t + 1);
    std::map<std::string, at::Tensor> losses;
    nn::Context context = given;
    models::Memory same = memory;  // both passes start with the previous chunk's memory
    result.values["out.logits"] = model.logits(tokens.narrow(1, 0, t), same, context);
    context.losses = &losses;
    result.values["out.loss"] = model.loss(tokens, memory, context).cross_entropy;
    if (losses.contains("entropy")) {
      result.values["aux.entropy"] = losses.at("entropy");
      if (const Json& weights = c.options.at("losses"); weights.is_object()) {
        result.values["aux.total"] = losses.at("entropy") * weights.value("entropy", 0.0);
      }
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

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
