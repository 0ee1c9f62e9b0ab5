// Shared by the readers of files and of assignments (`--set`), and by what writes configs.
#pragma once

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/config/field.h"
#include "headroom/config/model_options.h"

namespace headroom::config::detail {

inline constexpr std::string_view kAutomaticWord = "auto";  // the spelling of kAutomatic
std::string in_quotes(std::string_view text);               // on one line, with escapes
std::string spelled(double number);       // the shortest text that reads back exactly and is not an integer
std::string spelled(const Field& field);  // the current value, as TOML

// Formats a value for quotation in messages: TOML on one line, shortened.
std::string shown(const toml::node& value);

// Sets the field. Throws UserError "<prefix><dotted>: must be ..., got ...". `prefix` is the place: "train.toml:12: ".
void assign(const Field& field, const toml::node& value, const std::string& prefix, const std::string& dotted);

// Parses TOML. Throws UserError "<origin>:<line>: not valid TOML: ...", also for text that is nested too deeply.
toml::table parse_toml(std::string_view text, std::string_view origin);

// Sets the values of a file in `config` and records their places in config.given. File names are resolved relative to
// `folder`; if it is empty, they are left unchanged.
void read_onto(Config& config, const toml::table& values, std::string_view origin, const std::filesystem::path& folder);

// Makes the file names of a field absolute, relative to `folder`. Does nothing for other fields.
void make_absolute(const Field& field, const std::filesystem::path& folder);

// Returns the current name of a key that earlier versions called `dotted`. Any other name is returned unchanged.
std::string current_name(const std::string& dotted);

// Returns the dotted name to suggest for an unknown key `wrong` in the table `table` ("" at the top level). In order of
// preference, this is the same key in another table, the key that other tools call `wrong` ("lr"), a similar key in the
// table, or a similar key elsewhere. Returns "" if there is none.
std::string nearest_key(const Table& all, const std::string& table, std::string_view wrong);

// Returns the file that holds the recipe of this name; nullopt if there is none.
std::optional<std::filesystem::path> file_of_recipe(std::string_view name);

// Returns whether a place in GivenKeys is a command-line option instead of a file.
bool is_option(std::string_view place);

// Checks the keys that do not depend on `model`, as check() does.
void check_apart_from_model(const Config& config, std::string_view origin);

// Derives keys that are not set: one vocabulary size from the other, the context length of a vision model from the
// number of its patches, and the top_k of an attention part that determines it.
void resolve(Config& config, const GivenKeys& given);
void resolve_model(ModelOptions& model, const GivenKeys& given);  // all of these but the vocabulary size

// The entries of model.layers as TOML.

inline std::string entry_name(std::size_t entry) {
  return fmt::format("model.layers.{}", entry);
}

// Returns the number of layers after which the pattern repeats.
std::int64_t period_of(const std::vector<LayerOptions>& entries);
std::int64_t period_of(const ModelOptions& model);  // of model.layers or window_pattern
// Returns the index of the entry that layer `index` follows.
std::size_t entry_at(const std::vector<LayerOptions>& entries, std::int64_t index);
bool is_window_pattern(std::string_view text);  // "local:global"

// Returns the options of a model in which every layer is a layer of this entry.
ModelOptions of_entry(const ModelOptions& model, std::size_t entry);

// Sets model.layers to a list of tables. Throws UserError "<prefix><dotted>...: ...".
void assign_layers(std::vector<LayerOptions>& layers, const toml::node& value, const std::string& prefix,
                   const std::string& dotted);
// Sets a key of an entry: "repeat", "attention", "attention.window". `dotted` is the entry's name.
void assign_layer_key(LayerOptions& layer, const std::string& key, const toml::node& value, const std::string& prefix,
                      const std::string& dotted);
std::string spelled(const std::vector<LayerOptions>& layers);  // as TOML
// Returns the value of a key that an entry sets, by its dotted name, without quotes; nullopt if none sets it.
std::optional<std::string> layer_value(const std::vector<LayerOptions>& layers, std::string_view dotted);

}  // namespace headroom::config::detail
