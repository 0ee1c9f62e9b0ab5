// A run's whole configuration: read from TOML or a recipe's name, changed by `--set`, checked, written back.
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

// Dotted keys that were given a value, with where: "dense.toml:3", or the option of the command line, "--set".
using GivenKeys = std::map<std::string, std::string, std::less<>>;

struct Config {
  ModelOptions model;
  TokenizerOptions tokenizer;
  DataOptions data;
  TrainOptions train;
  DecodingOptions decoding;
  // No key named model.vocabulary_size: it is what the tokenizer's options say until the tokenizer is there, whose size
  // it becomes then.
  bool vocabulary_follows_tokenizer = false;
  GivenKeys given;       // by load_config
  std::string made_for;  // the data that the recipe, or its base, is written for if it names no files; else empty

  // Sequences of context_length tokens that a step reads at most: batch_size, or fewer that batch_tokens can hold.
  std::int64_t whole_sequences() const {
    return train.batch_tokens == 0 ? train.batch_size
                                   : std::min(train.batch_size, train.batch_tokens / model.context_length);
  }
};

void describe(Fields& fields, Config& config);

// Every error below is a UserError of one line that names the key, the value, what was expected, the file and
// line it is on and, for an unknown key, the nearest known one.

// TOML text; `origin` names it in messages. Keys that are absent keep their defaults, but for vocabulary sizes: of
// model.vocabulary_size and tokenizer.vocabulary_size one decides the other. Not yet checked as a whole.
Config parse_config(std::string_view text, std::string_view origin);

// A path to a TOML file or the name of a shipped recipe ("switchhead/wt103_47m"), then `overrides`, each
// "dotted.key=value" with the value as in TOML (a bare word is taken as a string), then check().
//
// A file that begins with `base = "other.toml"`, relative to it, or the name of a recipe, changes what it inherits from
// there. Names of files become absolute: in a file they are relative to its folder; in shipped recipes and overrides to
// the current one.
Config load_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides = {});

// The shipped recipes' names, sorted. Throws Error when the folder that holds them is not found.
std::vector<std::string> recipe_names();

// One `dotted.key=value`; returns the key. `origin` names where it comes from in messages.
std::string set_key(Config& config, std::string_view assignment, std::string_view origin = "--set");

// `assignments` given to `option` ("--set", "--vary"), as load_config takes its overrides: with all that follows from
// them, such as the size of the vocabulary. Not yet checked as a whole.
void change(Config& config, const std::vector<std::string>& assignments, const std::string& option);

// What no single key can tell: top_k > n_experts, odd rotary channels, tokenizer against model, ... Messages name the
// place where the key was given its value or, where none is known, the config by `origin`.
void check(const Config& config, std::string_view origin);
void check(const ModelOptions& model, std::string_view origin);

// Whether `name` is the name of a device, be it there or not: auto, cpu, cuda, cuda:<n>.
bool is_device(std::string_view name);

// Every key with its value, in a fixed order; parse_config(to_toml(c)) equals c. `sources`: a comment says of each key
// that was given a value where that was.
std::string to_toml(const Config& config, bool sources = false);

// The keys in which `config` differs from `base`, under a line `base = "NAME"`: a file that load_config() reads as
// `config` where NAME leads to `base`.
std::string changes_to_toml(const Config& config, const Config& base, const std::string& name);

// Every dotted key with its value as text, in the same order for every config: what two configs are compared by.
std::vector<std::pair<std::string, std::string>> flatten(const Config& config);

// Gives `to` the values that `from` has under the keys ("train.steps") that `wanted` accepts.
void take_values(Config& to, const Config& from, const std::function<bool(std::string_view key)>& wanted);

// Every key with its default, its choices or range, and what it means: for `headroom train --help-config`.
std::string help_text();

// The layers' window lengths from window and window_pattern ("local:global"): one entry a layer, 0 = all keys.
std::vector<std::int64_t> layer_windows(const ModelOptions& model);

}  // namespace headroom::config
