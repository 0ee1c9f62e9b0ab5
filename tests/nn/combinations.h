// Every combination of the parts of an attention layer, small enough to check each.
#pragma once

#include <string>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::testing {

// A value on one axis of the table: its name on the page, and what it sets.
struct Choice {
  const char* name;
  void (*set)(config::ModelOptions&);
};

inline const std::vector<Choice>& projections() {
  using config::Projection;
  static const std::vector<Choice> kAll = {
      {"dense", [](config::ModelOptions&) {}},
      {"multi-query", [](config::ModelOptions& m) { m.attention.n_kv_heads = 1; }},
      {"experts v o", [](config::ModelOptions& m) { m.attention.projection = Projection::experts; }},
      {"experts q k v o",
       [](config::ModelOptions& m) {
         m.attention.projection = Projection::experts;
         m.attention.experts = {"q", "k", "v", "o"};
         m.attention.shared_selection = true;
       }},
      {"gated heads", [](config::ModelOptions& m) { m.attention.projection = Projection::gated_heads; }},
      {"routed heads", [](config::ModelOptions& m) { m.attention.projection = Projection::routed_heads; }}};
  return kAll;
}

inline const std::vector<Choice>& scores() {
  using config::Keys;
  using config::Score;
  static const std::vector<Choice> kAll = {
      {"dot", [](config::ModelOptions&) {}},
      {"gaussian, own keys", [](config::ModelOptions& m) { m.attention.score = Score::gaussian_mixture; }},
      {"gaussian, shifted keys",
       [](config::ModelOptions& m) {
         m.attention.score = Score::gaussian_mixture;
         m.attention.keys = Keys::shifted;
         m.attention.prior = config::Prior::head_position;
       }},
      {"gaussian, max",
       [](config::ModelOptions& m) {
         m.attention.score = Score::gaussian_mixture;
         m.attention.mixing = config::Mixing::max;
         m.attention.mixture_score = config::MixtureScore::dot;
       }},
      {"linear",
       [](config::ModelOptions& m) {
         m.attention.score = Score::linear;
         m.attention.keys = Keys::single;
       }},
      {"linear, own keys", [](config::ModelOptions& m) { m.attention.score = Score::linear; }},
      {"linear, shifted keys", [](config::ModelOptions& m) {
         m.attention.score = Score::linear;
         m.attention.keys = Keys::shifted;
         m.attention.prior = config::Prior::head_position;
       }}};
  return kAll;
}

inline const std::vector<Choice>& compositions() {
  static const std::vector<Choice> kAll = {
      {"none", [](config::ModelOptions&) {}},
      {"static", [](config::ModelOptions& m) { m.attention.composition = config::Composition::static_map; }},
      {"dynamic", [](config::ModelOptions& m) { m.attention.composition = config::Composition::dynamic; }}};
  return kAll;
}

inline const std::vector<Choice>& positions() {
  using config::Position;
  static const std::vector<Choice> kAll = {
      {"none", [](config::ModelOptions& m) { m.attention.position = Position::none; }},
      {"rope", [](config::ModelOptions& m) { m.attention.position = Position::rope; }},
      {"relative",
       [](config::ModelOptions& m) {
         m.attention.position = Position::relative;
         m.attention.position_bias = true;
       }},
      {"learned", [](config::ModelOptions& m) { m.attention.position = Position::learned; }},
      {"sinusoidal", [](config::ModelOptions& m) { m.attention.position = Position::sinusoidal; }}};
  return kAll;
}

inline const std::vector<Choice>& masks() {
  static const std::vector<Choice> kAll = {
      {"causal", [](config::ModelOptions&) {}},
      {"window", [](config::ModelOptions& m) { m.attention.window = 3; }},
      {"memory", [](config::ModelOptions& m) { m.memory_length = m.context_length; }},
      {"memory and window",
       [](config::ModelOptions& m) {
         m.memory_length = m.context_length;
         m.attention.window = 4;
       }},
      {"both ways", [](config::ModelOptions& m) {
         m.kind = config::ModelKind::classifier;
         m.n_classes = 2;
       }}};
  return kAll;
}

inline config::ModelOptions small_model() {
  config::ModelOptions m;
  m.vocabulary_size = 11;
  m.n_layers = 2;
  m.d_model = 6;
  m.context_length = 5;
  m.attention.n_heads = 2;
  m.attention.d_head = 4;
  m.attention.n_experts = 3;
  m.attention.top_k = 2;
  m.attention.compose_rank = 1;
  m.mlp.d_hidden = 8;
  return m;
}

// Why a model cannot be, or nothing.
inline std::string refusal(const config::ModelOptions& model) {
  try {
    config::check(model, "config");
  } catch (const MisuseError& error) {
    const std::string sentence = error.what();
    return sentence.substr(sentence.find("model."));
  }
  return {};
}

}  // namespace headroom::testing
