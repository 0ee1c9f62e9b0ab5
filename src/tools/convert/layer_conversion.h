// The steps of a conversion: the checks, the config of the result, and the conversion layer by layer.
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

// Whether the conversion from `from` to `to` turns a dense or gated MLP into experts.
bool splits_mlp(const config::MlpOptions& from, const config::MlpOptions& to);

// Whether the attention of two layers (ModelOptions::of_layer()) differs in a setting that has an effect.
bool changes_attention(const config::ModelOptions& from, const config::ModelOptions& to);

// Whether the request asks for the conversion of this layer.
bool wants(const ConvertRequest& request, std::int64_t layer);

// Returns the layers that share keys with `layer`, the owner first. `owners`: ModelOptions::key_owners().
std::vector<std::int64_t> sharing(const std::vector<std::int64_t>& owners, std::int64_t layer);

// Returns the source's config with the target's attention in each layer that the request names, and with the target's
// MLP if splits_mlp(). Settings of positions, biases and norms do not change, because the kept weights rely on them;
// `notes` receives a sentence for each that differs in the target. Throws UserError naming the key for a target that
// the source cannot become.
config::Config result_config(const ConvertRequest& request, const config::Config& source,
                             std::vector<std::string>& notes);

// Returns the config with these layers. model.layers stays empty if all layers are alike. If any layer changes, keys
// that all layers have in common are set in model.attention and model.mlp, where an export looks for them.
config::Config with_layers(config::Config config, const std::vector<config::ModelOptions>& layers);

// Copies all parameters except attention that changes and MLPs that become experts.
void copy_rest(const models::Model& source, const models::Model& target);

// Returns the attention of a layer, built from the model's parameters, which are appended to `parameters` and get
// gradients.
nn::Attention attention_of(const models::Model& model, std::int64_t layer, std::vector<at::Tensor>& parameters);

// Like convert(request), but start(target) converts all layers. Before the call, `target` has random attention and the
// source's other parameters.
Conversion convert(const ConvertRequest& request, const std::function<void(const models::Model&)>& start);

class LayerConversion {
 public:
  // All references must outlive the object. `several`: store the sums of a layer's heads, the largest tensors, because
  // several targets use them.
  LayerConversion(const ConvertRequest& request, const models::Model& source, const Batches& batches,
                  bool several = false);

  // Converts a layer of `target`, which is freshly initialised: its attention and MLP, if their options differ from the
  // source's, in closed form and then by fit_steps steps of fitting. Layers that share keys are fitted together with
  // the owner, when the last of them is converted. Call it for layers in ascending order; several targets of one layer
  // use the same activations. Returns whether the layer computes the same as the source's layer. If it does not and is
  // fitted, appends its errors to `errors`.
  bool convert(const models::Model& target, std::int64_t layer, std::vector<LayerError>& errors);

 private:
  // The activations of one layer, collected when they are first needed.
  struct Collected {
    std::int64_t layer = -1;
    std::optional<HeadSums> sums;
    at::Tensor covariance;
    std::optional<LayerActivations> mlp, held_out_mlp;
  };
  // Activations of one layer's attention, on the tokens of the fit and on the held-out tokens.
  struct Attended {
    LayerActivations fit, held_out;
  };
  LayerWalk& at_layer(LayerWalk& walk) const;
  const LayerActivations& collected(std::optional<LayerActivations>& value, LayerWalk& walk,
                                    LayerActivations (*collect)(LayerWalk&)) const;
  // Returns the activations of a layer's attention; the first call must precede calls for later layers.
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
  std::map<std::int64_t, Attended> attended_;  // by layer; kept as long as layers that share keys may need them
};

}  // namespace headroom::convert
