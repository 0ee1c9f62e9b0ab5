// Models for this room's tests: a small model, changed models, and shipped recipes.
#pragma once

#include <cstdlib>

#include "tiny/options.h"

namespace headroom::cost {

// T = 5, d = 10, H = 4, e = 3, L = 2, V = 7.
inline config::ModelOptions small_model() {
  config::ModelOptions m =
      tiny::model({.vocabulary = 7, .d_model = 10, .context_length = 5, .n_heads = 4, .d_head = 3, .d_hidden = 11});
  m.attention.position = "none";
  return m;
}

// Applies assignments to keys of [model], separated by spaces: "n_layers=3 attention.top_k=2".
inline config::ModelOptions with(const config::ModelOptions& model, const std::string& assignments) {
  return tiny::changed(model, "", assignments);
}

// Changes of a model, and the expected count.
struct Counted {
  std::string assignments;
  std::int64_t count = 0;
};

// Loads a shipped recipe from the source tree.
inline config::Config recipe(const std::string& name) {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  return config::load_config(name);
}

}  // namespace headroom::cost
