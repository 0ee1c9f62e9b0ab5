// A model whose counts are written out in the tests.
#pragma once

#include "headroom/config/model_options.h"

namespace headroom::cost {

// T = 5, d = 10, H = 4, e = 3, L = 2, V = 7: no two factors alike.
inline config::ModelOptions small_model() {
  config::ModelOptions m;
  m.vocabulary_size = 7;
  m.n_layers = 2;
  m.d_model = 10;
  m.context_length = 5;
  m.attention.n_heads = 4;
  m.attention.d_head = 3;
  m.attention.position = "none";
  m.mlp.d_hidden = 11;
  return m;
}

}  // namespace headroom::cost
