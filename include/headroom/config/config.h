// The configuration of a run: read from TOML or a recipe, changed by `--set`, checked, written back.
//
// Every error is a UserError of one line that names the key and its value, what is expected, the file and line and, for
// an unknown key, the most similar known one.
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

// The keys that have been set, by dotted name, and where: "dense.toml:3", or a command-line option such as "--set".
using GivenKeys = std::map<std::string, std::string, std::less<>>;

struct Config {
  ModelOptions model;
  TokenizerOptions tokenizer;
  DataOptions data;
  TrainOptions train;
  DecodingOptions decoding;
  // model.vocabulary_size has not been set: it is derived from the tokenizer's options, and from the tokenizer once
  // that exists.
  bool vocabulary_follows_tokenizer = false;
  GivenKeys given;       // by load_config
  std::string made_for;  // the data that the recipe or its base is meant for if it names no files; else empty

  // Maximum number of sequences of context_length tokens in a step: batch_size, or fewer if batch_tokens is less.
  std::int64_t whole_sequences() const {
    return train.batch_tokens == 0 ? train.batch_size
                                   : std::min(train.batch_size, train.batch_tokens / model.context_length);
  }
};

void describe(Fields& fields, Config& config);

// Parses TOML text, which messages call `origin`. Keys that are not set keep their defaults, except that
// model.vocabulary_size and tokenizer.vocabulary_size are derived from each other. Does not check().
Config parse_config(std::string_view text, std::string_view origin);

// Reads a TOML file or a shipped recipe ("switchhead/wt103_47m"), applies `overrides` and checks the result. An
// override is "dotted.key=value" with the value as in TOML; strings need no quotes.
//
// A file inherits from another with `base = "other.toml"` (relative to it, or a recipe's name) at its top. File names
// in a config become absolute: they are relative to the config's folder or, in recipes and overrides, to the current
// one.
Config load_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides = {});

// The names of the shipped recipes, sorted. Throws Error if their folder is not found.
std::vector<std::string> recipe_names();

// Applies one "dotted.key=value" and returns the key. `origin` is named in messages.
std::string set_key(Config& config, std::string_view assignment, std::string_view origin = "--set");

// Applies the assignments of a command-line option ("--set", "--vary") as load_config() applies its overrides, with
// derived keys such as vocabulary sizes. Does not check().
void change(Config& config, const std::vector<std::string>& assignments, const std::string& option);

// A key and several values for it, to be tried one after the other: "train.learning_rate" and {"3e-4", "1e-3"}.
struct Variation {
  std::string key;
  std::vector<std::string> values;
};

// Parses "train.learning_rate=3e-4,1e-3"; commas inside brackets and quotes belong to a value. `option` is named in
// messages.
Variation parse_variation(std::string_view text, std::string_view option);

// Checks what no single key can: top_k > n_experts, odd rotary channels, tokenizer against model, ... Messages name the
// place where the key was set or, if it is unknown, `origin`.
void check(const Config& config, std::string_view origin);
void check(const ModelOptions& model, std::string_view origin);

// A warning for each key of attention and MLP that is set to another value than the default but unused with the chosen
// parts, such as n_experts with projection = "dense". Keys inherited from a base that chose other parts are not listed.
std::vector<std::string> unused_keys(const Config& config);

// Whether `name` is "auto", "cpu", "cuda" or "cuda:<n>"; the device need not exist.
bool is_device(std::string_view name);

// Every key with its value, in a fixed order; parse_config(to_toml(c)) equals c. `sources`: a comment after each key
// that has been set says where.
std::string to_toml(const Config& config, bool sources = false);

// The keys in which `config` differs from `base`, after a line `base = "NAME"`: a file that load_config() reads as
// `config` if NAME refers to `base`.
std::string changes_to_toml(const Config& config, const Config& base, const std::string& name);

// Every dotted key with its value as text, in the same order for every config.
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);

// Copies the values of the keys ("train.steps") that `wanted` accepts.
void take_values(Config& to, const Config& from, const std::function<bool(std::string_view key)>& wanted);

// Every key with its default, permitted values and meaning, for `headroom train --help-config`. `name`: only this
// dotted key or table; throws UserError if there is none.
std::string help_text(const std::string& name = "");

// The dotted key that `wrong`, a name without tables, probably means ("lr": train.learning_rate), or "".
std::string suggest_key(std::string_view wrong);

// The window of each layer, from window and window_pattern ("local:global"); 0: all keys.
std::vector<std::int64_t> layer_windows(const ModelOptions& model);

}  // namespace headroom::config
