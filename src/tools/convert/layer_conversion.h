// The steps of a conversion: the checks, the config of its result, and the conversion of layer after layer.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "activations.h"
#include "convert.h"
#include "fit.h"
#include "headroom/config/config.h"
#include "headroom/models/model.h"
#include "headroom/nn/attention.h"

namespace headroom::convert {

// Throws UserError naming the source for a model that cannot be converted.
void check_source(const ConvertRequest& request, const config::ModelOptions& model);

// Whether the dense or gated MLP of `from` becomes the experts of `to`.
bool splits_mlp(const config::MlpOptions& from, const config::MlpOptions& to);

// Whether the attention of two layers (ModelOptions::of_layer()) differs in a setting that it reads.
bool changes_attention(const config::ModelOptions& from, const config::ModelOptions& to);

// Whether the request asks for the conversion of this layer.
bool wants(const ConvertRequest& request, std::int64_t layer);

// The layers that share keys with `layer`, from the owner. `owners`: ModelOptions::key_owners().
std::vector<std::int64_t> sharing(const std::vector<std::int64_t>& owners, std::int64_t layer);

// Returns the source's config where each layer that the request asks for has the attention of the target's layer, and
// its MLP if splits_mlp(). Settings of positions, biases and norms stay as they are, because the weights that are kept
// rely on them: `notes` receives a sentence for each that the target has otherwise. Throws UserError naming the key for
// a target that the source cannot become.
config::Config result_config(const ConvertRequest& request, const config::Config& source,
                             std::vector<std::string>& notes);

// Returns the config with these layers: without a pattern if they are those of model.attention and model.mlp.
config::Config with_layers(config::Config config, const std::vector<config::ModelOptions>& layers);

// Copies every parameter outside of the attention that changes, and outside of the MLPs that are split.
void copy_rest(const models::Model& source, const models::Model& target);

// Returns the attention of a layer, built from the model's parameters, which are appended to `parameters` and get
// gradients.
nn::Attention attention_of(const models::Model& model, std::int64_t layer, std::vector<at::Tensor>& parameters);

// Like convert(request), but start(target) converts all layers. It is called with random attention and the source's
// other parameters in `target`.
Conversion convert(const ConvertRequest& request, const std::function<void(const models::Model&)>& start);

class LayerConversion {
 public:
  // All references must outlive the object. `several`: the sums of a layer's heads, the largest tensors, are stored for
  // more targets.
  LayerConversion(const ConvertRequest& request, const models::Model& source, const Batches& batches,
                  bool several = false);

  // Converts a layer of `target`, which is freshly initialised: its attention and its MLP as far as their options
  // differ from the source's, in closed form, then by fit_steps steps of fitting. Layers that share keys are fitted
  // together with the owner of the keys, when the last of them is converted. Call it for layers in ascending
  // order; several targets of one layer use the same activations. Returns whether the layer computes
  // the same as the source's. If it does not and is fitted, its errors are appended to `errors`.
  bool convert(const models::Model& target, std::int64_t layer, std::vector<LayerError>& errors);

 private:
  // The activations of one layer, collected when they are first needed.
  struct Collected {
    std::int64_t layer = -1;
    std::optional<HeadSums> sums;
    at::Tensor covariance;
    std::optional<LayerActivations> mlp, held_out_mlp;
  };
  // Of one layer's attention, on the tokens of the fit and on the held-out ones.
  struct Attended {
    LayerActivations fit, held_out;
  };
  LayerWalk& at_layer(LayerWalk& walk) const;
  const LayerActivations& collected(std::optional<LayerActivations>& value, LayerWalk& walk,
                                    LayerActivations (*collect)(LayerWalk&)) const;
  // The activations of a layer's attention, collected when they are first needed: before those of later layers.
  const Attended& attended(std::int64_t layer);
  void start_group(const models::Model& target, const std::vector<std::int64_t>& layers);
  LayerError fit_attention(const models::Model& target, const std::vector<std::int64_t>& layers);
  LayerError fit_mlp(const models::Model& target);
  FitOptions options_for(double rate) const;

  const ConvertRequest& request_;
  const models::Model& source_;
  std::int64_t sequences_;
  bool several_;
  LayerWalk fit_, held_out_;
  Collected now_;
  std::map<std::int64_t, Attended> attended_;  // by layer; those that layers which share keys may need are kept
};

}  // namespace headroom::convert
