#include "convert.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "activations.h"
#include "fit.h"
#include "foundation/core/machine/log.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "start.h"
#include "training/train/loop/initial_parameters.h"

namespace headroom::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStepTokens = 2048;   // of a batch of the fit
constexpr std::int64_t kMostTokens = 32768;  // used unless the request says otherwise

void check_source(const ConvertRequest& request, const config::ModelOptions& model) {
  const config::AttentionOptions& a = model.attention;
  if (model.kind != config::ModelKind::language_model && model.kind != config::ModelKind::masked_language_model) {
    user_error("convert: {}: model.kind is {}; expected a language_model or masked_language_model", request.source,
               config::name_of(model.kind));
  }
  model.require_no_pattern("convert: " + request.source);
  request.target.model.require_no_pattern("convert: " + request.to);
  if (model.norm_position == config::NormPosition::peri) {
    user_error("convert: {}: model.norm_position is peri; expected pre or post", request.source);
  }
  if (a.projection != "dense" || a.score != "dot" || a.composition != "none" || a.gate_output != "none") {
    user_error(
        "convert: {}: its attention has projection {}, score {}, composition {} and gate_output {}; expected a dense "
        "model: projection dense, score dot, and none of the others",
        request.source, a.projection.name(), a.score.name(), a.composition.name(), a.gate_output.name());
  }
}

void require_equal(const ConvertRequest& request, std::string_view key, const auto& is, const auto& wanted) {
  if (is != wanted) {
    user_error("convert: {}: {} is {}, but {} has {}; the attention alone may differ", request.to, key, is,
               request.source, wanted);
  }
}

// The config of the result: the source's with the target's attention. Settings of positions, biases and norms stay as
// they are, because the weights that are kept rely on them.
config::Config result_config(const ConvertRequest& request, const config::Config& source,
                             std::vector<std::string>& notes) {
  const config::ModelOptions &from = source.model, &to = request.target.model;
  require_equal(request, "model.kind", config::name_of(to.kind), config::name_of(from.kind));
  require_equal(request, "model.d_model", to.d_model, from.d_model);
  require_equal(request, "model.n_layers", to.n_layers, from.n_layers);
  require_equal(request, "model.attention.position", to.attention.position.name(), from.attention.position.name());
  if (to.mlp.kind != from.mlp.kind) {
    user_error("convert: {}: model.mlp.kind is {}, but {} has {}; the attention alone is converted", request.to,
               config::name_of(to.mlp.kind), request.source, config::name_of(from.mlp.kind));
  }
  if (to.attention.composition->maps_per_head(to.attention) > 1) {
    user_error(
        "convert: {}: model.attention.composition is {}, whose heads have several attention matrices; the heads of a "
        "dense model have one, so train this model from scratch",
        request.to, to.attention.composition.name());
  }
  config::Config result = source;
  config::AttentionOptions& a = result.model.attention;
  a = to.attention;
  const config::AttentionOptions& kept = from.attention;
  a.bias = kept.bias;
  a.of<config::PositionOptions>().position_bias = kept.of<config::PositionOptions>().position_bias;
  a.of<config::PositionOptions>().rope_base = kept.of<config::PositionOptions>().rope_base;
  static_cast<config::RopeScalingOptions&>(a.of<config::PositionOptions>()) = kept.of<config::PositionOptions>();
  a.of<config::PositionOptions>().forget = kept.of<config::PositionOptions>().forget;
  a.qk_norm = kept.qk_norm || a.qk_norm;
  a.window = kept.window;
  a.window_pattern = kept.window_pattern;
  a.dropout = kept.dropout;
  if (a.position == "rope" && a.projection == "latent") {
    // The rotated channels get the source's highest frequencies.
    const auto channels = static_cast<double>(kept.projection->rotary_channels(kept));
    a.of<config::PositionOptions>().rope_base = std::pow(
        kept.of<config::PositionOptions>().rope_base, static_cast<double>(a.projection->rotary_channels(a)) / channels);
  } else if (a.position == "rope" && a.projection->has_head_matrices()) {
    a.of<config::PositionOptions>().rope_fraction =
        std::min(1.0, static_cast<double>(kept.projection->rotary_channels(kept)) / static_cast<double>(a.d_head));
  }
  const auto before = config::flatten(request.target), after = config::flatten(result);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].first.starts_with("model.attention.") && before[i].second != after[i].second) {
      notes.push_back(fmt::format("{} is {}, as the kept weights need it, instead of {}", before[i].first,
                                  after[i].second, before[i].second));
    }
  }
  config::check(result, request.to);
  return result;
}

struct Batches {
  std::vector<models::Batch> fit, held_out;
  std::int64_t sequences = 1;  // of a batch
};

// Reads batches of `tokens` tokens and half as many held-out ones; nullopt if the text has fewer.
std::optional<Batches> read_batches(const ConvertRequest& request, config::Config config, std::int64_t tokens) {
  const std::int64_t length = config.model.context_length;
  Batches batches{
      .fit = {}, .held_out = {}, .sequences = std::max<std::int64_t>(1, std::min(kStepTokens, tokens / 4) / length)};
  config.train.batch_size = batches.sequences;
  const tasks::TaskData data = train::open_data_with(tasks::task_for(config, "convert"), config,
                                                     store::find_checkpoint(request.source), request.cache);
  const std::int64_t rows = batches.sequences * length;
  const std::int64_t wanted = std::max<std::int64_t>(1, (tokens + rows - 1) / rows), held_out = (wanted + 1) / 2;
  for (std::int64_t i = 0; i < wanted + held_out; ++i) {
    if (data.training->position().epoch > 0) {
      return std::nullopt;
    }
    (i < wanted ? batches.fit : batches.held_out).push_back(data.training->next());
  }
  return batches;
}

Batches read_batches(const ConvertRequest& request, config::Config config) {
  if (!request.data.empty()) {
    config.data.train = request.data;
    config.data.validation.clear();
  }
  config.train.batch_tokens = 0;
  config.train.accumulate = 1;
  config.train.seed = static_cast<std::int64_t>(request.seed);
  const std::int64_t least = request.tokens > 0 ? request.tokens : 4 * config.model.context_length;
  for (std::int64_t tokens = request.tokens > 0 ? request.tokens : kMostTokens; tokens >= least; tokens /= 2) {
    if (std::optional<Batches> batches = read_batches(request, config, tokens)) {
      return std::move(*batches);
    }
  }
  user_error("convert: --data: the text has fewer than {} tokens and half as many held-out ones; give more text{}",
             least, request.tokens > 0 ? ", or fewer --tokens" : "");
}

void require_finite(const nn::Parameters& parameters, const std::string& name) {
  for (const nn::Parameter& parameter : parameters.stored()) {
    if (!at::isfinite(parameter.tensor).all().item<bool>()) {
      user_error("convert: {}: parameter {} has a NaN or infinite value", name, parameter.name);
    }
  }
}

nn::AttentionPlace place_of(const config::ModelOptions& model, std::int64_t layer) {
  return {.d_model = model.d_model,
          .n_layers = model.n_layers,
          .layer = layer,
          .causal = model.kind == config::ModelKind::language_model,
          .cross = false,
          .window = model.of_layer(layer).attention.window,
          .context_length = model.context_length,
          .memory_length = model.memory_length};
}

// Copies every parameter outside of attention layers; the configs have them in the same shapes.
void copy_rest(const nn::Parameters& source, const nn::Parameters& target) {
  const at::NoGradGuard guard;
  for (nn::Parameter parameter : target.stored()) {
    if (parameter.name.find(".attention.") == std::string::npos) {
      parameter.tensor.copy_(source.at(parameter.name));
    }
  }
}

LayerError fit_layer(const ConvertRequest& request, const models::Model& source, const models::Model& target,
                     const Batches& batches, std::int64_t layer) {
  const std::string place = fmt::format("layer{}.attention", layer);
  nn::Parameters own;  // the layer's part of the target's, as shared handles
  const auto find = [&](const nn::Parameter& wanted) { return target.parameters().at(wanted.name); };
  const nn::ParameterSource values(find, at::TensorOptions(at::kFloat));
  const nn::Builder build(own, values);
  const nn::Attention attention(target.options().attention, place_of(target.options(), layer), build.in(place));
  std::vector<at::Tensor> parameters;
  for (const nn::Parameter& parameter : own.all()) {
    parameters.push_back(parameter.tensor);
  }
  const LayerActivations all = collect(source, batches.fit, place), held_out = collect(source, batches.held_out, place);
  const FitErrors errors = fit(attention, parameters, all, held_out,
                               {.steps = request.fit_steps,
                                .sequences = batches.sequences,
                                .seed = request.seed + static_cast<std::uint64_t>(layer)});
  return {.layer = place, .start = errors.start, .fitted = errors.fitted};
}

void write_result(const ConvertRequest& request, const config::Config& config, const store::Checkpoint& source,
                  const models::Model& target) {
  store::Checkpoint checkpoint{
      .config = config, .step = 0, .tokenizer = source.tokenizer, .tensors = {}, .metadata = {}};
  for (const nn::Parameter& parameter : target.parameters().stored()) {
    checkpoint.tensors["model." + parameter.name] = parameter.tensor.detach();
  }
  checkpoint.metadata = {{"converted_from", request.source}, {"converted_by", request.command}};
  store::save_checkpoint(checkpoint, request.out);
}

struct Compared {
  const config::Config& source;
  const config::Config& all;
  const Batches& batches;
};

// The layers that the request names, or those that the measured losses choose.
Layers layers_of(const ConvertRequest& request, const models::Model& source, const models::Model& all,
                 const Compared& compared, Conversion& conversion) {
  const std::int64_t n = compared.source.model.n_layers;
  if (!request.choose_layers) {
    Layers named(static_cast<std::size_t>(n), request.layers.empty());
    for (const std::int64_t layer : request.layers) {
      named[static_cast<std::size_t>(layer)] = true;
    }
    return named;
  }
  const auto loss = [&](const Layers& layers) {
    const config::Config config = mixed_config(compared.source, compared.all, layers);
    return loss_of(*mixed_model(config, source, all, layers), compared.batches.held_out);
  };
  Layers chosen = choose_layers(n, request.budget, loss, conversion.layer_losses);
  for (const LayerLoss& own : conversion.layer_losses) {
    log_info("layer {} alone adds {:.4f} nats: {}", own.layer, own.added,
             chosen[static_cast<std::size_t>(own.layer)] ? "converted" : "kept");
  }
  return chosen;
}

void check_layers(const ConvertRequest& request, std::int64_t n_layers) {
  for (const std::int64_t layer : request.layers) {
    if (layer < 0 || layer >= n_layers) {
      user_error("convert: --layers: {} has layers 0 to {}, got {}", request.source, n_layers - 1, layer);
    }
  }
}

// Whether the request asks for the conversion of this layer.
bool wants(const ConvertRequest& request, std::int64_t layer) {
  return request.layers.empty() ||
         std::find(request.layers.begin(), request.layers.end(), layer) != request.layers.end();
}

}  // namespace

Conversion convert(const ConvertRequest& request) {
  require_writable(request.out, "convert: --out");
  const store::OpenedModel opened =
      store::open_model(request.source, {.threads = request.threads, .precision = config::Precision::fp32});
  check_source(request, opened.config().model);
  check_layers(request, opened.config().model.n_layers);
  require_finite(opened.model->parameters(), request.source);
  Conversion conversion;
  const config::Config config = result_config(request, opened.config(), conversion.notes);
  const Batches batches = read_batches(request, opened.config());
  const std::unique_ptr<models::Model> target = models::make_model(config.model, request.seed);
  copy_rest(opened.model->parameters(), target->parameters());
  conversion.exact = !request.random_attention;
  for (std::int64_t layer = 0; layer < config.model.n_layers && !request.random_attention; ++layer) {
    if (!wants(request, layer)) {
      continue;
    }
    const std::string place = fmt::format("layer{}.attention", layer);
    conversion.exact &= start_layer({.from = opened.config().model.attention,
                                     .to = config.model.attention,
                                     .source = opened.model->parameters(),
                                     .target = target->parameters(),
                                     .place = place,
                                     .sums = [&] { return collect_heads(*opened.model, batches.fit, place); },
                                     .covariance = [&] { return covariance_of(*opened.model, batches.fit, place); }});
  }
  if (!conversion.exact && request.fit_steps > 0) {
    for (nn::Parameter parameter : target->parameters().all()) {
      parameter.tensor.requires_grad_(true);
    }
    for (std::int64_t layer = 0; layer < config.model.n_layers; ++layer) {
      if (!wants(request, layer)) {
        continue;
      }
      conversion.layers.push_back(fit_layer(request, *opened.model, *target, batches, layer));
      const LayerError& error = conversion.layers.back();
      log_info("{}: error {:.4f} in closed form, {:.4f} fitted", error.layer, error.start, error.fitted);
    }
  }
  const Layers layers = layers_of(request, *opened.model, *target, {opened.config(), config, batches}, conversion);
  const config::Config result = mixed_config(opened.config(), config, layers);
  const std::unique_ptr<models::Model> model = mixed_model(result, *opened.model, *target, layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]) {
      conversion.converted.push_back(static_cast<std::int64_t>(i));
    }
  }
  conversion.parameters = model->parameters().count();
  conversion.loss_before = loss_of(*opened.model, batches.held_out);
  conversion.loss_after = loss_of(*model, batches.held_out);
  write_result(request, result, opened.checkpoint, *model);
  return conversion;
}

Json to_json(const Conversion& conversion) {
  Json json = {{"converted", conversion.converted},   {"layer_losses", Json::array()},
               {"parameters", conversion.parameters}, {"loss_before", conversion.loss_before},
               {"loss_after", conversion.loss_after}, {"exact", conversion.exact},
               {"notes", conversion.notes},           {"layers", Json::array()}};
  for (const LayerError& error : conversion.layers) {
    json["layers"].push_back({{"layer", error.layer}, {"start", error.start}, {"fitted", error.fitted}});
  }
  for (const LayerLoss& own : conversion.layer_losses) {
    json["layer_losses"].push_back({{"layer", own.layer}, {"added", own.added}});
  }
  return json;
}

}  // namespace headroom::convert
