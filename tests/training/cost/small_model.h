// Models for the tests of the room: a small one, and the shipped recipes.
#pragma once

#include <cstdlib>
#include <string>

#include "tiny/options.h"

namespace headroom::cost {

// T = 5, d = 10, H = 4, e = 3, L = 2, V = 7.
inline config::ModelOptions small_model() {
  config::ModelOptions m =
      tiny::model({.vocabulary = 7, .d_model = 10, .context_length = 5, .n_heads = 4, .d_head = 3, .d_hidden = 11});
  m.attention.position = "none";
  return m;
}

// A shipped recipe, from the source tree.
inline config::Config recipe(const std::string& name) {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return config::load_config(name);
}

}  // namespace headroom::cost
