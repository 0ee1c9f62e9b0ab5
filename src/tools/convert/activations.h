// Inputs and outputs of the source's attention layers on a text: the training data of a conversion.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "headroom/models/model.h"

namespace headroom::convert {

// Inputs and output of one attention layer: n sequences of T queries and S keys.
struct LayerActivations {
  at::Tensor x, source, y;  // [n, T, d], [n, S, d], [n, T, d] in float32

  LayerActivations narrow(std::int64_t begin, std::int64_t count) const;
  LayerActivations select(const at::Tensor& sequences) const;  // indices [k]
};

// Runs `batches` through the model and returns the activations of the attention layer `place` ("layer3.attention").
// `batches` hold consecutive rows, as training would read them.
LayerActivations collect(const models::Model& model, const std::vector<models::Batch>& batches,
                         const std::string& place);

// Sums over all queries, for the heads of a layer. With z_h = the attention map of head h times the source tokens, [T,
// d],
// and z the concatenation over heads and a constant 1:
struct HeadSums {
  at::Tensor gram;      // sum z^T z, [H d + 1, H d + 1] float64
  at::Tensor cross;     // sum z^T y, [H d + 1, d] float64
  double energy = 0.0;  // sum y^2
  std::int64_t n_heads = 0, width = 0;
  double queries = 0.0;

  // Returns the rows of `gram` and `cross` that belong to these heads, followed by the constant's.
  at::Tensor rows_of(const std::vector<std::int64_t>& heads) const;  // int64
};

// Returns the covariance of the layer's source tokens, E[x^T x] [d, d] in float64.
at::Tensor covariance_of(const models::Model& model, const std::vector<models::Batch>& batches,
                         const std::string& place);

HeadSums collect_heads(const models::Model& model, const std::vector<models::Batch>& batches, const std::string& place);

// Returns the cross-entropy of the batches in nats per target.
double loss_of(const models::Model& model, const std::vector<models::Batch>& batches);

}  // namespace headroom::convert
