// The training data of a conversion: text, and the source's activations on the text.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "convert.h"
#include "engine/models/block.h"
#include "headroom/models/model.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/observer.h"
#include "headroom/nn/parameters.h"

namespace headroom::convert {

nn::AttentionPlace place_of(const config::ModelOptions& model, std::int64_t layer);

// Returns make(builder), a part that shares the model's own parameters. Unless `parameters` is null, appends them to it
// and makes them require gradients.
template <class Make>
auto part_of(const models::Model& model, std::vector<at::Tensor>* parameters, const Make& make) {
  nn::Parameters own;  // shared handles
  const auto find = [&](const nn::Parameter& wanted) { return model.parameters().at(wanted.name); };
  const nn::ParameterSource values(find, at::TensorOptions(at::kFloat));
  auto made = make(nn::Builder(own, values));
  for (const nn::Parameter& parameter : own.all()) {
    if (parameters != nullptr) {
      parameters->push_back(parameter.tensor);
      parameters->back().requires_grad_(true);
    }
  }
  return made;
}

// Reads batches with the source layer by layer. The inputs of the current layer are stored for all batches, so that
// queries in ascending order of layers continue from the layer below instead of running the whole source each time. The
// values equal those of the model's forward pass, up to rounding.
class LayerWalk {
 public:
  // `batches` hold consecutive rows, as training would read them.
  LayerWalk(const models::Model& model, std::vector<models::Batch> batches);

  // Advances to a layer. Throws Error if the layer is below the current one.
  void go_to(std::int64_t layer);
  // Runs the current layer and calls visit(values) after each batch, with the values named `names` ("attention.x").
  void run(const std::vector<std::string>& names, const std::function<void(const nn::Recorder&)>& visit);
  // Returns "layer3." for the current layer: the prefix of its recorded values' names.
  std::string prefix() const;

 private:
  const models::Model& model_;
  std::vector<models::Batch> batches_;
  models::KeyOwners owners_;
  std::vector<models::KeyOwners::Shared> shared_;  // by batch
  std::int64_t layer_ = -1;                        // -1: before the embedding
  std::vector<at::Tensor> in_, out_;  // the layer's inputs and outputs, [B, T, d] per batch; out_: empty before it runs
};

// Inputs and output of one attention layer or MLP: n sequences of T queries and S keys. For an MLP, `source` is `x`.
struct LayerActivations {
  at::Tensor x, source, y;  // [n, T, d], [n, S, d], [n, T, d] in float32

  LayerActivations narrow(std::int64_t begin, std::int64_t count) const;
  LayerActivations select(const at::Tensor& sequences) const;  // indices [k]
};

// Returns the activations of the current layer's attention or MLP.
LayerActivations collect_attention(LayerWalk& walk);
LayerActivations collect_mlp(LayerWalk& walk);

// Sums over all queries of the layer's heads. With z_h = the attention map of head h times the source tokens, [T, d],
// and z the concatenation over heads and a constant 1:
struct HeadSums {
  at::Tensor gram;      // sum z^T z, [H d + 1, H d + 1] float64
  at::Tensor cross;     // sum z^T y, [H d + 1, d] float64
  double energy = 0.0;  // sum y^2
  std::int64_t n_heads = 0, width = 0;
  double queries = 0.0;

  // The rows of `gram` and `cross` that belong to these heads, then the constant.
  at::Tensor rows_of(const std::vector<std::int64_t>& heads) const;  // int64
};

// Returns the covariance of the current layer's source tokens, E[x^T x] [d, d] in float64.
at::Tensor covariance_of(LayerWalk& walk);

HeadSums collect_heads(LayerWalk& walk);

// Returns the cross-entropy of the batches in nats per target.
double loss_of(const models::Model& model, const std::vector<models::Batch>& batches);

// The text on which a conversion computes activations.
struct Batches {
  std::vector<models::Batch> fit, held_out;  // held_out has half as many tokens
  std::int64_t sequences = 1;                // per batch
  std::string data;                          // identifies the content of the data
};

// Reads the request's data with the source's tokenizer. Throws UserError naming the option if there is too little text.
Batches read_batches(const ConvertRequest& request, config::Config source);

}  // namespace headroom::convert
