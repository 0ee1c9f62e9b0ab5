// What training makes smaller: cross-entropy, and the balance losses of whatever routes in the model.
#pragma once

#include <ATen/ATen.h>

namespace headroom::models {

struct Loss {
  at::Tensor cross_entropy;  // scalar, mean over targets >= 0, in nats
  at::Tensor regulariser;    // scalar: expert-balance losses with their coefficients; undefined where there are none
  at::Tensor total() const { return regulariser.defined() ? cross_entropy + regulariser : cross_entropy; }
};

}  // namespace headroom::models
