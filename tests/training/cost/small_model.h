// Models for the tests of the room: a small one, and the shipped recipes.
#pragma once

#include <cstdlib>
#include <string>

#include "headroom/config/config.h"

namespace headroom::cost {

// T = 5, d = 10, H = 4, e = 3, L = 2, V = 7.
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

// A shipped recipe, from the source tree.
inline config::Config recipe(const std::string& name) {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return config::load_config(name);
}

}  // namespace headroom::cost
