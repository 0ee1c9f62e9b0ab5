// Lists every combination of the parts of an attention layer, at sizes small enough to check each.
#pragma once

#include <cctype>
#include <span>

#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"
#include "tiny/options.h"

namespace headroom::testing {

// A choice on one axis of the table in docs/combinations.md: its name there, and the options that it sets.
struct Choice {
  std::string name;
  std::function<void(config::ModelOptions&)> set;
};

// Returns every part with the settings of its examples().
template <class Part>
std::vector<Choice> choices_of(config::PartName<Part> config::AttentionOptions::*slot) {
  std::vector<Choice> all;
  for (const Part* part : config::all_parts<Part>()) {
    for (const config::Example& example : part->examples()) {
      all.push_back({example.name, [slot, part, set = example.set](config::ModelOptions& m) {
                       m.attention.*slot = part->name();
                       set(m.attention);
                     }});
    }
  }
  return all;
}

inline const std::vector<Choice>& projections() {
  static const std::vector<Choice> kAll = choices_of(&config::AttentionOptions::projection);
  return kAll;
}

inline const std::vector<Choice>& scores() {
  static const std::vector<Choice> kAll = choices_of(&config::AttentionOptions::score);
  return kAll;
}

inline const std::vector<Choice>& compositions() {
  static const std::vector<Choice> kAll = choices_of(&config::AttentionOptions::composition);
  return kAll;
}

inline const std::vector<Choice>& positions() {
  static const std::vector<Choice> kAll = choices_of(&config::AttentionOptions::position);
  return kAll;
}

inline const std::vector<Choice>& output_gates() {
  static const std::vector<Choice> kAll = choices_of(&config::AttentionOptions::gate_output);
  return kAll;
}

// Output gates apply last, so combining them with every projection under dot scores suffices.
inline std::vector<Choice> gated_projections() {
  std::vector<Choice> all;
  for (const Choice& projection : projections()) {
    for (const Choice& gate : output_gates()) {
      all.push_back({projection.name + " / " + gate.name, [&projection, &gate](config::ModelOptions& m) {
                       projection.set(m);
                       gate.set(m);
                     }});
    }
  }
  return all;
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
  config::ModelOptions m =
      tiny::model({.vocabulary = 11, .d_model = 6, .context_length = 5, .d_head = 4, .d_hidden = 8});
  m.attention.of<config::RoutingOptions>().n_experts = 3;
  m.attention.of<config::RoutingOptions>().top_k = 2;
  m.attention.of<config::CompositionOptions>().compose_rank = 1;
  return m;
}

// Returns why config::check() refuses a model, or "".
inline std::string refusal(const config::ModelOptions& model) {
  try {
    config::check(model, "config");
  } catch (const UserError& error) {
    const std::string sentence = error.what();
    return sentence.substr(sentence.find("model."));
  }
  return {};
}

// Returns whether the model attends both ways or has the widest causal mask of its combination: memory and a window, or
// neither.
inline bool has_widest_mask(const config::ModelOptions& model) {
  const bool memory = model.memory_length > 0, window = model.attention.window > 0;
  if (model.kind != config::ModelKind::language_model) {
    return true;
  }
  if (memory != window || memory) {
    return memory && window;
  }
  config::ModelOptions wider = model;
  wider.memory_length = model.context_length;
  wider.attention.window = 4;
  return !refusal(wider).empty();
}

// Calls `visit` for each product of choices, legal or not, with the names joined by slashes and the model.
using Visit = std::function<void(const std::string& names, const config::ModelOptions& model)>;
inline void for_products(std::span<const std::vector<Choice>> axes, const Visit& visit,
                         const config::ModelOptions& model = small_model(), const std::string& names = "") {
  if (axes.empty()) {
    visit(names, model);
    return;
  }
  for (const Choice& choice : axes.front()) {
    config::ModelOptions chosen = model;
    choice.set(chosen);
    for_products(axes.subspan(1), visit, chosen, names.empty() ? choice.name : names + "/" + choice.name);
  }
}

// Returns the axes of all combinations of attention parts; output gates are not included.
inline const std::vector<std::vector<Choice>>& all_axes() {
  static const std::vector<std::vector<Choice>> kAll = {projections(), scores(), compositions(), masks(), positions()};
  return kAll;
}

// Returns the attention options that a choice changes, as an entry of model.layers.
inline config::LayerOptions entry_of(const Choice& choice) {
  config::Config before, after;
  before.model = after.model = small_model();
  choice.set(after.model);
  const auto was = config::flatten(before), is = config::flatten(after);
  config::LayerOptions entry;
  for (std::size_t i = 0; i < is.size(); ++i) {
    constexpr std::string_view kTable = "model.attention.";
    const std::string& value = is[i].second;
    if (value != was[i].second && is[i].first.starts_with(kTable)) {
      const bool word = std::isalpha(value.front()) != 0 && value != "true" && value != "false";
      entry.attention[is[i].first.substr(kTable.size())] = word ? '"' + value + '"' : value;
    }
  }
  return entry;
}

// Returns models of two layers, for all legal pairs of settings of single parts.
inline std::vector<std::pair<std::string, config::ModelOptions>> two_layer_models() {
  std::vector<Choice> choices;
  for (const auto& axis : {projections(), scores(), compositions(), positions(), output_gates()}) {
    choices.insert(choices.end(), axis.begin(), axis.end());
  }
  std::vector<std::pair<std::string, config::ModelOptions>> all;
  for (const Choice& first : choices) {
    for (const Choice& second : choices) {
      config::ModelOptions m = small_model();
      m.layers = {entry_of(first), entry_of(second)};
      if (refusal(m).empty()) {
        all.emplace_back(first.name + " + " + second.name, m);
      }
    }
  }
  return all;
}

}  // namespace headroom::testing
