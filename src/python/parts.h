// The kinds of layers that Python has, each with its parameters and what it computes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "headroom/nn/context.h"
#include "layer.h"

namespace headroom::python {

// What a layer is given besides its parameters. Letters: B batch, T tokens, M memory, S source, d d_model.
struct Inputs {
  at::Tensor x;                             // [B, T, d]; of an embedding: tokens [B, T]
  std::optional<at::Tensor> memory;         // [B, M, d] what stands before x: seen, not computed
  std::optional<at::Tensor> source;         // [B, S, d] cross-attention's keys, and values unless
  std::optional<at::Tensor> source_value;   // [B, S, d]
  std::optional<at::Tensor> valid_keys;     // [B, M + T] (cross: [B, S]) bool
  std::optional<at::Tensor> valid_queries;  // [B, T] bool
  std::optional<at::Tensor> valid_source;   // [B, S] bool, of a block
  std::optional<at::Tensor> targets;        // [B, T] of a head: its loss instead of its scores
  bool remember = false;                    // a block also gives what it remembers for the next chunk
};

struct Part {
  const char* kind;
  void (*make)(const Layer& layer, const nn::Builder& build);
  // The result first, then what was asked for besides.
  std::vector<at::Tensor> (*run)(const Layer& layer, const Inputs& in, const nn::Builder& build,
                                 const nn::Context& context);
};

// Throws UserError for an unknown kind.
const Part& part_of(const Layer& layer);

}  // namespace headroom::python
