// The entries of model.layers as TOML.
#pragma once

#include <toml++/toml.h>

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/attention_part.h"
#include "headroom/config/model_options.h"

namespace headroom::config::detail {

inline std::string entry_name(std::size_t entry) {
  return fmt::format("model.layers.{}", entry);
}

// Returns the number of layers after which the pattern repeats.
std::int64_t period_of(const std::vector<LayerOptions>& entries);
std::int64_t period_of(const ModelOptions& model);  // of model.layers or window_pattern
bool is_window_pattern(std::string_view text);      // "local:global"

// Returns the options of a model all of whose layers are like those of the entry.
ModelOptions of_entry(const ModelOptions& model, std::size_t entry);

// Sets model.layers to a list of tables. Throws UserError "<prefix><dotted>...: ...".
void assign_layers(std::vector<LayerOptions>& layers, const toml::node& value, const std::string& prefix,
                   const std::string& dotted);
// Sets a key of an entry: "repeat", "attention", "attention.window". `dotted` is the entry's name.
void assign_layer_key(LayerOptions& layer, const std::string& key, const toml::node& value, const std::string& prefix,
                      const std::string& dotted);
std::string spelled(const std::vector<LayerOptions>& layers);  // as TOML

}  // namespace headroom::config::detail
