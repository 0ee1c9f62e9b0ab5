// Converts the layers of a model one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "activations.h"
#include "convert.h"
#include "fit.h"
#include "headroom/models/model.h"

namespace headroom::convert {

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
