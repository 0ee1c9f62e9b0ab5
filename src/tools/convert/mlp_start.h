// The starting values of an expert MLP whose experts are made of the hidden units of a dense or gated MLP, after
// MoEfication (Zhang et al. 2022): units that are active together form an expert, and the router predicts how much an
// expert contributes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/nn/parameters.h"

namespace headroom::convert {

struct MlpStartRequest {
  const config::MlpOptions& from;      // dense or gated
  const config::MlpOptions& to;        // experts of the same kind, with as many hidden units together
  const nn::Parameters& source;        // has "layer3.ffn.w_up" and so on
  const nn::Parameters& target;        // freshly initialised; written in place
  std::string place;                   // "layer3.ffn"
  std::function<at::Tensor()> inputs;  // of the MLP, [N, d]; called unless all experts are chosen
};

// Writes the starting values into `target` and returns whether the MLP then computes what the source's does (up to
// rounding): if all experts are chosen. Then the experts are neighbouring units, and the router starts at 0: all gates
// are equal. Outputs are divided by the gates' initial size.
bool start_mlp(const MlpStartRequest& request);

// Divides units into `groups` groups of equal size by their features [units, n]: balanced k-means by the cosine, from
// the units farthest from one another. Returns the units in the order of their groups, int64.
at::Tensor balanced_groups(const at::Tensor& features, std::int64_t groups);

}  // namespace headroom::convert
