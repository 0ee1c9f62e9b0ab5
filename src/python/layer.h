// Layers and models as Python names them: a string that describes everything but the parameters' values.
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
  // attention, mlp, norm, block; model; embedding and head (the ends of a language model); ends (any model without
  // blocks)
  std::string kind;
  bool causal = true, cross = false;
  std::int64_t index = 0;  // of the layer in its model, which decides the window
  config::ModelOptions model;

  // Throws UserError if the index is out of range.
  nn::AttentionPlace place() const;
  // The options of a model; for `ends` with no layers.
  config::ModelOptions built() const;
};

// The layer of a description from describe_layer(), parsed once. Throws UserError for any other string.
const Layer& layer_of(const std::string& text);

// The description of `layer` with the model of a TOML file or recipe (`source`; "": the defaults), changed by
// `settings`
// ("model.n_layers=2") and checked. Throws UserError, which begins with `origin`.
std::string describe_layer(Layer layer, const std::string& source, const std::vector<std::string>& settings,
                           const std::string& origin);
// The description of a layer whose model has been checked.
std::string describe(const Layer& layer);

// Makes the layer's parameters and nothing else.
void make_parameters(const Layer& layer, nn::Parameters& parameters, const nn::ParameterSource& source);

// The inputs of a layer. Letters: B batch, T tokens, M memory, S source, d d_model.
struct Inputs {
  at::Tensor x;                             // [B, T, d]; embedding: tokens [B, T]
  std::optional<at::Tensor> memory;         // [B, M, d] tokens before x, keys and values only
  std::optional<at::Tensor> source;         // [B, S, d] keys of cross-attention
  std::optional<at::Tensor> source_value;   // [B, S, d] its values; by default source
  std::optional<at::Tensor> valid_keys;     // [B, M + T] (cross: [B, S]) bool
  std::optional<at::Tensor> valid_queries;  // [B, T] bool
  std::optional<at::Tensor> valid_source;   // [B, S] bool, of a block
  std::optional<at::Tensor> targets;        // [B, T] of a head: return the loss instead of logits
  bool remember = false;                    // block: also return its memory for the next chunk
};

// A kind of layer: how its parameters are made and what it computes.
struct LayerKind {
  const char* name;
  void (*make)(const Layer& layer, const nn::Builder& build);
  // The result, then the memory if asked for. Throws Error for inputs of wrong shapes or types.
  std::vector<at::Tensor> (*run)(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                 const nn::Context& context);
};
// Throws UserError for an unknown kind.
const LayerKind& kind_of(const Layer& layer);

}  // namespace headroom::python
