// Layers and models as Python identifies them: by a string that describes everything except the parameters' values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/nn/attention.h"
#include "headroom/nn/context.h"
#include "headroom/nn/parameters.h"

namespace headroom::python {

struct Layer {
  // attention, mlp, norm, block; model; embedding and head (the input and output layers of a language model); ends (any
  // model without its blocks)
  std::string kind;
  bool causal = true, cross = false;
  std::int64_t index = 0;  // index of the layer in its model
  config::ModelOptions model;

  // Throws UserError if the index is out of range.
  nn::AttentionPlace place() const;
  // Returns the options of a model whose layers are all like this one.
  config::ModelOptions own() const { return model.of_layer(index); }
  // Returns the options of the model to build: `model`, but without layers for the kind "ends".
  config::ModelOptions built() const;
};

// Returns the layer for a description from describe_layer(), parsed once. Throws UserError for any other string.
const Layer& layer_of(const std::string& text);

// Returns the description of `layer` after loading the model of a TOML file or recipe (`source`; "": the defaults),
// applying `settings` ("model.n_layers=2") and checking the result. Throws UserError starting with `origin`.
std::string describe_layer(Layer layer, const std::string& source, const std::vector<std::string>& settings,
                           const std::string& origin);
// Returns the description of a layer whose model has been checked.
std::string describe(const Layer& layer);

// Creates only the layer's parameters.
void make_parameters(const Layer& layer, nn::Parameters& parameters, const nn::ParameterSource& source);

// The inputs of a layer. Letters: B batch, T tokens, M memory, S source, d d_model.
struct Inputs {
  at::Tensor x;                             // [B, T, d]; embedding: tokens [B, T]
  std::optional<at::Tensor> memory;         // [B, M, d] tokens before x, used for keys and values only
  std::optional<at::Tensor> source;         // [B, S, d] keys of cross-attention
  std::optional<at::Tensor> source_value;   // [B, S, d] values of cross-attention; default: source
  std::optional<at::Tensor> valid_keys;     // [B, M + T] (cross: [B, S]) bool
  std::optional<at::Tensor> valid_queries;  // [B, T] bool
  std::optional<at::Tensor> valid_source;   // [B, S] bool, for a block
  std::optional<at::Tensor> routed_by;      // [B, T, d] for an MLP of experts: what tokens are routed by; default: x
  std::optional<at::Tensor> targets;        // [B, T], for a head: return the loss instead of logits
  bool remember = false;                    // block: also return its memory for the next chunk
  bool each = false;                        // head: return the loss of each target that is not negative [N]
};

// A kind of layer: how its parameters are created and what it computes.
struct LayerKind {
  const char* name;
  void (*make)(const Layer& layer, const nn::Builder& build);
  // Returns the result, then the memory if requested. Throws Error for inputs of wrong shapes or types.
  std::vector<at::Tensor> (*run)(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                 const nn::Context& context);
};
// Throws UserError for an unknown kind.
const LayerKind& kind_of(const Layer& layer);

}  // namespace headroom::python
