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

  // Converts the attention of a layer and, if splits_mlp(), its MLP, in closed form and then by fit_steps of fitting;
  // the layers in ascending order. Returns whether the layer computes what the source's does; otherwise `errors`
  // receives its errors, if it is fitted.
  bool convert(std::int64_t layer, std::vector<LayerError>& errors);

 private:
  // The part of the target that make(builder) makes of the target's parameters, which `parameters` receives.
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
