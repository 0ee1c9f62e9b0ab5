#include "convert.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

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

constexpr double kJointRate = 1e-3;  // learning rate of the joint fit

// Identifies the source and the data of a conversion.
struct SourceAndData {
  std::string source_sha256, data;
};

void write_result(const ConvertRequest& request, const config::Config& config, const store::Checkpoint& source,
                  const Conversion& conversion, const SourceAndData& origin, const models::Model& target) {
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
                         {kLosses, fmt::format("{} before, {} after", format_decimal(conversion.loss_before, 4),
                                               format_decimal(conversion.loss_after, 4))}};
  store::save_checkpoint(checkpoint, request.out);
}

// Returns the parameters of attention that changes or owns shared keys, and of MLPs that become experts.
std::vector<at::Tensor> converted_parameters(const models::Model& source, const models::Model& model) {
  std::vector<at::Tensor> found;
  const auto add = [&](const std::string& place) {
    for (const nn::Parameter& parameter : model.parameters().all()) {
      if (parameter.name.starts_with(place)) {
        found.push_back(parameter.tensor);
      }
    }
  };
  const std::int64_t n = source.options().n_layers;
  const std::vector<std::int64_t> before = source.options().key_owners(n), after = model.options().key_owners(n);
  for (std::int64_t layer = 0; layer < n; ++layer) {
    const config::ModelOptions from = source.options().of_layer(layer), to = model.options().of_layer(layer);
    if (changes_attention(from, to) || sharing(before, layer) != sharing(after, layer)) {
      add(fmt::format("layer{}.attention.", layer));
    }
    if (splits_mlp(from.mlp, to.mlp)) {
      add(fmt::format("layer{}.ffn.", layer));
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

}  // namespace

Conversion convert(const ConvertRequest& request, const std::function<void(const models::Model&)>& start) {
  if (!request.out.empty()) {
    require_writable(request.out, "convert: --out");
  }
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
  conversion.exact = !request.random_attention && !start;
  LayerConversion conversions(request, *opened.model, batches);
  for (std::int64_t layer = 0; layer < config.model.n_layers; ++layer) {
    if (wants(request, layer)) {
      conversion.converted.push_back(layer);
      conversion.exact &= !request.random_attention && !start && conversions.convert(*target, layer, conversion.layers);
    }
  }
  if (start) {
    start(*target);
  }
  if (!conversion.exact && !request.random_attention) {
    conversion.together =
        joint_fit(request, *opened.model, *target, converted_parameters(*opened.model, *target), batches);
  }
  conversion.parameters = target->parameters().count();
  conversion.loss_before = loss_of(*opened.model, batches.held_out);
  conversion.loss_after = loss_of(*target, batches.held_out);
  if (!request.out.empty()) {
    write_result(request, config, opened.checkpoint, conversion,
                 {.source_sha256 = train::parameters_sha256(opened.model->parameters()), .data = batches.data},
                 *target);
  }
  return conversion;
}

Conversion convert(const ConvertRequest& request) {
  return convert(request, {});
}

Json to_json(const Conversion& conversion) {
  Json json = {{"converted", conversion.converted},
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
  return json;
}

}  // namespace headroom::convert
