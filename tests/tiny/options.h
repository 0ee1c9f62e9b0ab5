// Options of models and training runs that are small enough for a test.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "headroom/config/config.h"
#include "headroom/config/part_options.h"

namespace headroom::tiny {

struct Sizes {
  std::int64_t vocabulary, n_layers = 2, d_model, context_length, n_heads = 2, d_head, d_hidden;
};

// Returns a dense language model of these sizes.
inline config::ModelOptions model(const Sizes& sizes) {
  config::ModelOptions o;
  o.vocabulary_size = sizes.vocabulary;
  o.n_layers = sizes.n_layers;
  o.d_model = sizes.d_model;
  o.context_length = sizes.context_length;
  o.attention.n_heads = sizes.n_heads;
  o.attention.d_head = sizes.d_head;
  o.mlp.d_hidden = sizes.d_hidden;
  return o;
}

// Sets keys of the config, such as "model.n_layers=3 train.steps=2"; `table` is put in front of each.
inline void set(config::Config& config, const std::string& keys, const std::string& table = "") {
  std::istringstream stream(keys);
  for (std::string one; stream >> one;) {
    config::set_key(config, table + one);
  }
}

inline config::Config changed(config::Config config, const std::string& keys) {
  set(config, keys);
  return config;
}

// Returns the model with other values: keys of [model.attention], such as "position=rope window=3", and other keys of
// [model], such as "n_layers=3 mlp.kind=gated".
inline config::ModelOptions changed(const config::ModelOptions& model, const std::string& attention,
                                    const std::string& rest = "") {
  config::Config config;
  config.model = model;
  config.given["model.attention.top_k"] = "test";  // top_k must not be derived
  set(config, attention, "model.attention.");
  set(config, rest, "model.");
  return config.model;
}

// Returns a small model with options for experts, in case a test selects them.
inline config::ModelOptions model(config::ModelKind kind = config::ModelKind::language_model) {
  config::ModelOptions o = model({.vocabulary = 23, .d_model = 12, .context_length = 8, .d_head = 6, .d_hidden = 16});
  o.kind = kind;
  o.attention.of<config::RoutingOptions>().n_experts = o.mlp.n_experts = 4;
  o.attention.of<config::RoutingOptions>().top_k = o.mlp.top_k = 2;
  return o;
}

// Returns a training run on bytes, on one thread.
inline config::Config config_of(const config::ModelOptions& model) {
  config::Config config;
  config.model = model;
  config.tokenizer.kind = config::TokenizerKind::bytes;
  config.tokenizer.vocabulary_size = model.vocabulary_size;
  config.train.batch_size = 4;
  config.train.log_every = 1;
  config.train.threads = 1;
  return config;
}

// Returns two layers of SwitchHead attention with memory and all kinds of dropout, which a resumed run must restore.
inline config::Config config() {
  config::Config config =
      config_of(model({.vocabulary = 256, .d_model = 16, .context_length = 8, .d_head = 4, .d_hidden = 32}));
  config.model.memory_length = 8;
  config.model.dropout = 0.1;
  config.model.attention.projection = "experts";
  config.model.attention.of<config::RoutingOptions>().n_experts = 3;
  config.model.attention.of<config::RoutingOptions>().top_k = 2;
  config.model.attention.of<config::RoutingOptions>().expert_dropout = 0.1;
  config.model.attention.position = "relative";
  config.train.steps = 8;
  config.train.learning_rate = 1e-2;
  config.train.precision = config::Precision::fp32;
  return config;
}

}  // namespace headroom::tiny
