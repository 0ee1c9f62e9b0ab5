// A model small enough to compare whole in a test.
#pragma once

#include "headroom/config/model_options.h"

namespace headroom::testing {

inline config::ModelOptions tiny_model(config::ModelKind kind = config::ModelKind::language_model) {
  config::ModelOptions o;
  o.kind = kind;
  o.vocabulary_size = 23;
  o.n_layers = 2;
  o.d_model = 12;
  o.context_length = 8;
  o.attention.n_heads = 2;
  o.attention.d_head = 6;
  o.attention.n_experts = 4;
  o.attention.top_k = 2;
  o.mlp.d_hidden = 16;
  o.mlp.n_experts = 4;
  o.mlp.top_k = 2;
  return o;
}

}  // namespace headroom::testing
