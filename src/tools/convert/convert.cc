#include "convert.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "activations.h"
#include "fit.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/text/format.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/store/checkpoint.h"
#include "headroom/store/open_model.h"
#include "layer_conversion.h"
#include "training/train/step/state.h"
#include "training/train/step/teacher.h"

namespace headroom::convert {
namespace {

// Returns the source's config with the attention and MLP of `all` in the converted layers: `all` itself if these are
// all layers, else with an entry of model.layers for each run of equal layers.
config::Config mixed_config(const config::Config& source, const config::Config& all, const Layers& converted) {
  if (std::all_of(converted.begin(), converted.end(), [](bool is) { return is; })) {
    return all;
  }
  config::Config mixed = source;
  config::ModelOptions& model = mixed.model;
  model.attention.window_pattern = config::AttentionOptions().window_pattern;
  for (std::size_t i = 0; i < converted.size(); ++i) {
    const config::ModelOptions of = (converted[i] ? all : source).model.of_layer(static_cast<std::int64_t>(i));
    config::LayerOptions entry;
    entry.attention = config::differing_keys(of.attention, model.attention);
    entry.mlp = config::differing_keys(of.mlp, model.mlp);
    if (!model.layers.empty() && model.layers.back().attention == entry.attention &&
        model.layers.back().mlp == entry.mlp) {
      ++model.layers.back().repeat;
    } else {
      model.layers.push_back(std::move(entry));
    }
  }
  if (model.layers.size() == 1 && model.layers.front().attention.empty() && model.layers.front().mlp.empty()) {
    model.layers.clear();
  }
  return mixed;
}

// Returns a model of that config: layers of `all` where converted, everything else of the source.
std::unique_ptr<models::Model> mixed_model(const config::Config& config, const models::Model& source,
                                           const models::Model& all, const Layers& converted) {
  const at::NoGradGuard guard;
  std::unique_ptr<models::Model> model = models::make_model(config.model, 1);
  for (nn::Parameter parameter : model->parameters().stored()) {
    bool is_converted = false;
    for (std::size_t i = 0; i < converted.size(); ++i) {
      is_converted |= converted[i] && parameter.name.starts_with(fmt::format("layer{}.", i));
    }
    parameter.tensor.copy_((is_converted ? all : source).parameters().at(parameter.name));
  }
  return model;
}

}  // namespace

Layers choose_layers(std::int64_t n_layers, double budget, const std::function<double(const Layers&)>& loss,
                     std::vector<LayerLoss>& measured) {
  Layers chosen(static_cast<std::size_t>(n_layers), false);
  const double before = loss(chosen);
  for (std::int64_t layer = 0; layer < n_layers; ++layer) {
    Layers alone(chosen.size(), false);
    alone[static_cast<std::size_t>(layer)] = true;
    measured.push_back({.layer = layer, .added = loss(alone) - before});
  }
  std::vector<LayerLoss> cheapest = measured;
  std::stable_sort(cheapest.begin(), cheapest.end(),
                   [](const LayerLoss& a, const LayerLoss& b) { return a.added < b.added; });
  for (const LayerLoss& next : cheapest) {
    Layers more = chosen;
    more[static_cast<std::size_t>(next.layer)] = true;
    if (loss(more) - before > budget) {
      break;
    }
    chosen = more;
  }
  return chosen;
}

namespace {

constexpr double kJointRate = 1e-3;  // learning rate of the joint fit

// Copies every parameter outside of the converted layers' attention and, if it is split, MLP; the configs have them in
// the same shapes.
void copy_rest(const models::Model& source, const models::Model& target) {
  const at::NoGradGuard guard;
  const bool splits = splits_mlp(source.options().mlp, target.options().mlp);
  for (nn::Parameter parameter : target.parameters().stored()) {
    const auto in = [&](const char* part) { return parameter.name.find(part) != std::string::npos; };
    if (!in(".attention.") && !(splits && in(".ffn."))) {
      parameter.tensor.copy_(source.parameters().at(parameter.name));
    }
  }
}

std::string losses_text(const Conversion& conversion) {
  return fmt::format("{} before, {} after", format_decimal(conversion.loss_before, 4),
                     format_decimal(conversion.loss_after, 4));
}

// What a conversion was computed from.
struct Origin {
  std::string source_sha256, data;
};

void write_result(const ConvertRequest& request, const config::Config& config, const store::Checkpoint& source,
                  const Conversion& conversion, const Origin& origin, const models::Model& target) {
  store::Checkpoint checkpoint{
      .config = config, .step = 0, .tokenizer = source.tokenizer, .tensors = {}, .metadata = {}};
  for (const nn::Parameter& parameter : target.parameters().stored()) {
    checkpoint.tensors["model." + parameter.name] = parameter.tensor.detach();
  }
  checkpoint.metadata = {{"converted_from", request.source},
                         {"converted_by", request.command},
                         {kSourceHash, origin.source_sha256},
                         {"converted_data", origin.data},
                         {"converted_seed", fmt::format("{}", request.seed)},
                         {kLosses, losses_text(conversion)}};
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

// The parameters of the converted parts of these layers.
std::vector<at::Tensor> converted_parameters(const models::Model& model, const Layers& layers, bool splits) {
  std::vector<at::Tensor> found;
  for (const nn::Parameter& parameter : model.parameters().all()) {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i] && (parameter.name.starts_with(fmt::format("layer{}.attention.", i)) ||
                        (splits && parameter.name.starts_with(fmt::format("layer{}.ffn.", i))))) {
        found.push_back(parameter.tensor);
      }
    }
  }
  return found;
}

std::optional<FitErrors> joint_fit(const ConvertRequest& request, const models::Model& source,
                                   const models::Model& model, const std::vector<at::Tensor>& parameters,
                                   const Batches& batches) {
  if (request.fit_steps == 0 || request.joint_steps == 0 || parameters.empty() || !train::can_teach(model.options())) {
    return std::nullopt;
  }
  const FitErrors divergences =
      fit_together(source, model, parameters, batches,
                   {.steps = request.joint_steps, .learning_rate = kJointRate, .seed = request.seed});
  log_info("all layers together: divergence from {} {:.4f} before, {:.4f} fitted", request.source, divergences.start,
           divergences.fitted);
  return divergences;
}

void check_layers(const ConvertRequest& request, std::int64_t n_layers) {
  std::set<std::int64_t> seen;
  for (const std::int64_t layer : request.layers) {
    if (!seen.insert(layer).second) {
      user_error("convert: --layers: names layer {} twice", layer);
    }
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
  store::require_finite(opened.checkpoint, fmt::format("convert: {}", opened.name));
  Conversion conversion;
  const config::Config config = result_config(request, opened.config(), conversion.notes);
  const Batches batches = read_batches(request, opened.config());
  const std::unique_ptr<models::Model> target = models::make_model(config.model, request.seed);
  copy_rest(*opened.model, *target);
  conversion.exact = !request.random_attention;
  if (!request.random_attention) {
    LayerConversion conversions(request, *opened.model, *target, batches);
    for (std::int64_t layer = 0; layer < config.model.n_layers; ++layer) {
      if (wants(request, layer)) {
        conversion.exact &= conversions.convert(layer, conversion.layers);
      }
    }
  }
  const Layers layers = layers_of(request, *opened.model, *target, {opened.config(), config, batches}, conversion);
  const config::Config result = mixed_config(opened.config(), config, layers);
  const bool all = std::all_of(layers.begin(), layers.end(), [](bool is) { return is; });
  const std::unique_ptr<models::Model> mixed = all ? nullptr : mixed_model(result, *opened.model, *target, layers);
  const models::Model* const model = all ? target.get() : mixed.get();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]) {
      conversion.converted.push_back(static_cast<std::int64_t>(i));
    }
  }
  if (!conversion.exact && !request.random_attention) {
    const bool splits = splits_mlp(opened.config().model.mlp, config.model.mlp);
    conversion.together =
        joint_fit(request, *opened.model, *model, converted_parameters(*model, layers, splits), batches);
  }
  conversion.parameters = model->parameters().count();
  conversion.loss_before = loss_of(*opened.model, batches.held_out);
  conversion.loss_after = loss_of(*model, batches.held_out);
  write_result(request, result, opened.checkpoint, conversion,
               {.source_sha256 = train::parameters_sha256(opened.model->parameters()), .data = batches.data}, *model);
  return conversion;
}

Json to_json(const Conversion& conversion) {
  Json json = {{"converted", conversion.converted},
               {"layer_losses", Json::array()},
               {"parameters", conversion.parameters},
               {"loss_before", conversion.loss_before},
               {"loss_after", conversion.loss_after},
               {"exact", conversion.exact},
               {"notes", conversion.notes},
               {"layers", Json::array()},
               {"together", nullptr}};
  if (conversion.together) {
    json["together"] = {{"start", conversion.together->start}, {"fitted", conversion.together->fitted}};
  }
  for (const LayerError& error : conversion.layers) {
    json["layers"].push_back({{"layer", error.layer}, {"start", error.start}, {"fitted", error.fitted}});
  }
  for (const LayerLoss& own : conversion.layer_losses) {
    json["layer_losses"].push_back({{"layer", own.layer}, {"added", own.added}});
  }
  return json;
}

}  // namespace headroom::convert
