// The steps of a conversion: the checks, the config of its result, and the conversion of layer after layer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "activations.h"
#include "convert.h"
#include "fit.h"
#include "headroom/config/config.h"
#include "headroom/models/model.h"

namespace headroom::convert {

// Throws UserError naming the source for a model that cannot be converted.
void check_source(const ConvertRequest& request, const config::ModelOptions& model);

// Whether the dense or gated MLP of `from` becomes the experts of `to`.
bool splits_mlp(const config::MlpOptions& from, const config::MlpOptions& to);

// Returns the source's config with the target's attention, and its MLP if splits_mlp(). Settings of positions, biases
// and norms stay as they are, because the weights that are kept rely on them: `notes` receives a sentence for each that
// the target has otherwise. Throws UserError naming the key for a target that the source cannot become.
config::Config result_config(const ConvertRequest& request, const config::Config& source,
                             std::vector<std::string>& notes);

class LayerConversion {
 public:
  // `target`, freshly initialised, receives the converted layers. All must outlive the object.
  LayerConversion(const ConvertRequest& request, const models::Model& source, const models::Model& target,
                  const Batches& batches);

  // Converts the attention of a layer and, if splits_mlp(), its MLP: in closed form, then by fit_steps steps of
  // fitting. Call it for the layers in ascending order. Returns whether the layer computes the same as the source's. If
  // it does not and is fitted, its errors are appended to `errors`.
  bool convert(std::int64_t layer, std::vector<LayerError>& errors);

 private:
  // Returns make(builder), a part of the target built from the target's parameters, which are appended to `parameters`.
  template <class Make>
  auto part(const std::string& place, std::vector<at::Tensor>& parameters, const Make& make) const;
  LayerError fit_attention(std::int64_t layer);
  LayerError fit_mlp(std::int64_t layer);
  FitOptions options_for(std::int64_t layer, double rate) const;

  const ConvertRequest& request_;
  const models::Model &source_, &target_;
  std::int64_t sequences_;
  LayerWalk fit_, held_out_;
};

}  // namespace headroom::convert
