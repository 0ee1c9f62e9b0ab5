// The configuration of a run: read from TOML or a recipe, changed by `--set`, checked, and written back.
//
// Every error is a one-line UserError that names the key, its value, the expected values, and the file and line. For an
// unknown key it also names the most similar known key.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/model_options.h"
#include "headroom/config/run_options.h"

namespace headroom::config {

// The keys that have been set, by dotted name, with the place: "dense.toml:3", or an option such as "--set".
using GivenKeys = std::map<std::string, std::string, std::less<>>;

struct Config {
  ModelOptions model;
  TokenizerOptions tokenizer;
  DataOptions data;
  TrainOptions train;
  DecodingOptions decoding;
  // Whether model.vocabulary_size is not set. It is then derived from the tokenizer's options and, once the tokenizer
  // exists, from the tokenizer.
  bool vocabulary_follows_tokenizer = false;
  GivenKeys given;       // keys set in files and overrides; filled in by load_config()
  std::string made_for;  // key `made_for` of the file or a base: data that the config is meant for but does not name

  // Mean training losses near 5, 10, 25, 50 and 100% of the steps: the key `losses` of the file itself, not of its
  // bases. Empty without this key, and if an override changes what is computed.
  std::vector<double> recorded_losses;

  // Returns the maximum number of sequences of context_length tokens per step: batch_size, or fewer if batch_tokens is
  // the tighter limit.
  std::int64_t whole_sequences() const {
    return train.batch_tokens == 0 ? train.batch_size
                                   : std::min(train.batch_size, train.batch_tokens / model.context_length);
  }
};

void describe(Fields& fields, Config& config);

// Parses TOML text; messages call it `origin`. Keys that are not set keep their defaults, except that
// model.vocabulary_size and tokenizer.vocabulary_size are derived from each other. Does not call check().
Config parse_config(std::string_view text, std::string_view origin);

// Reads a TOML file or a shipped recipe ("switchhead/wt103_47m"), applies `overrides` and checks the result. An
// override is "dotted.key=value" with a TOML value; strings need no quotes. Throws UserError.
//
// A file inherits from another with `base = "other.toml"` at its top; the base is a path relative to the file, or a
// recipe's name. File names become absolute. In a config file they are relative to its folder; in recipes and overrides
// they are relative to the current folder.
Config load_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides = {});

// A shipped recipe, "FOLDER/NAME", is the table [rows.NAME] of a file in recipes/FOLDER, which usually holds the rows
// of one table of a paper. A row has the keys of a config, on top of its `base`, a recipe; without `base`, on top of
// the file's top level, which has the settings that rows share. `sets = ["large"]` adds the keys of [sets.large]. The
// other keys of a row describe it.
struct Recipe {
  std::string name;  // "switchhead/wt103_47m"; accepted wherever a config file is
  std::filesystem::path file;
  std::string base;                      // base of the row or else of the top level; empty if there is none
  std::string paper, table, row, about;  // values of the row or else of the top level; empty if missing
};

// Returns the shipped recipes, sorted by name. Throws Error if their folder is not found.
std::vector<Recipe> list_recipes();
std::vector<std::string> recipe_names();

// As load_config(), for a run. If train.start_from is set, the checkpoint completes `model`, so `model` and the keys
// that depend on it are not checked until then.
Config load_run_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides = {});

// Returns whether the run uses an existing tokenizer, from tokenizer.model or from a token file.
bool has_tokenizer(const Config& config);

// Applies one "dotted.key=value" and returns the key. Messages name `origin`.
std::string set_key(Config& config, std::string_view assignment, std::string_view origin = "--set");

// Applies the assignments of a command-line option ("--set", "--vary") as load_config() applies overrides, including
// derived keys such as vocabulary sizes. Does not call check().
void change(Config& config, const std::vector<std::string>& assignments, const std::string& option);

// A key and the values to try for it: "train.learning_rate" and {"3e-4", "1e-3"}.
struct Variation {
  std::string key;
  std::vector<std::string> values;
};

// Parses "train.learning_rate=3e-4,1e-3". Commas inside brackets and quotes belong to a value. Messages name `option`.
Variation parse_variation(std::string_view text, std::string_view option);

// Checks constraints between keys, such as top_k <= n_experts, an even number of rotary channels, and a tokenizer that
// fits the model. Throws UserError. Messages name the place where the key was set or, if it is unknown, `origin`.
void check(const Config& config, std::string_view origin);
void check(const ModelOptions& model, std::string_view origin);

// Returns a warning for each key that has a non-default value but no effect with the selected parts, kind of model,
// tokenizer or schedule, such as n_experts with projection = "dense". Omits keys inherited from a base that selected
// others.
std::vector<std::string> unused_keys(const Config& config);

// Returns whether `name` is "auto", "cpu", "cuda" or "cuda:<n>". The device need not exist.
bool is_device(std::string_view name);

// Writes every key with its value in a fixed order; parse_config(to_toml(c)) equals c. With `sources`, a comment after
// each key that was set names the place.
std::string to_toml(const Config& config, bool sources = false);

// Writes the keys in which `config` differs from `base`, after a line `base = "NAME"`. load_config() reads the result
// as `config` if NAME refers to `base`.
std::string changes_to_toml(const Config& config, const Config& base, const std::string& name);

// Returns every dotted key with its value as text, in the same order for every config.
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);

// Returns the value of a dotted key as flatten() does; also of a key that an entry of model.layers sets
// ("model.layers.0.attention.window"). Throws Error if there is no such key.
std::string value_of(const Config& config, const std::string& key);

// Returns the dotted keys ("model.attention.window") whose values differ and have an effect in one of the models.
std::vector<std::string> differing_keys(const ModelOptions& a, const ModelOptions& b);

// Whether a key sets only the attention range or the speed of rotations, so that the same parameters can be used with
// another value.
bool sets_range(std::string_view key);

// Copies to `to` the values of the keys ("train.steps") that `wanted` accepts.
void take_values(Config& to, const Config& from, const std::function<bool(std::string_view key)>& wanted);

// Returns every key with its default, permitted values and meaning, for `headroom train --help-config`. A non-empty
// `name` selects a single dotted key or table; throws UserError if it does not exist.
std::string help_text(const std::string& name = "");

// Returns the dotted key that `wrong`, a name without tables, probably means ("lr": train.learning_rate), or "".
std::string suggest_key(std::string_view wrong);

// Returns the name by which a config file in `folder` can inherit from this file or recipe: a path relative to the
// folder, so that both can be moved together, or the recipe's name. Without a folder, the path is absolute.
std::string base_name(const std::string& path_or_recipe, const std::filesystem::path& folder = {});

}  // namespace headroom::config
