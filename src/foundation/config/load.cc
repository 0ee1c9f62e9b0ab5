#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/format.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "parse.h"

namespace headroom::config {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLargestConfig = std::size_t{1} << 20;  // bytes
constexpr std::size_t kLongestChain = 100;                    // configs that inherit from each other

// Returns the recipe name of a path: "demo/x" for "recipes/demo/x.toml".
std::string as_recipe_name(std::string name) {
  if (const std::size_t folder = name.rfind("recipes/"); folder != std::string::npos) {
    name = name.substr(folder + 8);
  }
  return name.ends_with(".toml") ? name.substr(0, name.size() - 5) : name;
}

// Returns the recipe with a similar name, or with the same name in another folder; empty if there is none.
std::string nearest_recipe(const std::string& wrong, const std::vector<std::string>& names) {
  std::string close = nearest(as_recipe_name(wrong), names);
  for (const std::string& name : names) {
    if (close.empty() && name.substr(name.find('/') + 1) == as_recipe_name(wrong)) {
      close = name;
    }
  }
  return close;
}

struct Source {
  fs::path path;
  std::optional<std::string> row = {};  // of a file of recipes; "": the settings that its rows share

  // The origin of values in messages: "recipes/switchhead/wikitext103.toml#wt103_47m".
  std::string origin() const { return path.string() + (row.value_or("").empty() ? "" : "#" + *row); }
};

// Returns what to do about an unknown name of a config.
std::string hint(const std::string& wrong) {
  std::vector<std::string> names;
  try {
    names = recipe_names();
  } catch (const Error&) {  // no recipes are installed
  }
  const std::string folder = wrong.ends_with('/') ? wrong : wrong + "/";
  if (const auto n = std::ranges::count_if(names, [&](const auto& name) { return name.starts_with(folder); }); n > 0) {
    return fmt::format("; `headroom recipes {}` lists the {} recipes of this folder", folder, n);
  }
  if (const std::string close = nearest_recipe(wrong, names); !close.empty()) {
    return ", did you mean " + close + "?";
  }
  const std::string download = download_hint(wrong);
  return !download.empty()
             ? download
             : "; `headroom recipes` lists the recipes, and `headroom import` converts a downloaded model";
}

// Finds a config by its path relative to `folder`, or a recipe by its name. Error messages start with `prefix`.
Source find_config(const std::string& path_or_recipe, const fs::path& folder, const std::string& prefix) {
  const fs::path path = folder / path_or_recipe;
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    return {.path = path};
  }
  try {
    if (const std::optional<fs::path> file = detail::file_of_recipe(path_or_recipe)) {
      return {.path = *file, .row = path_or_recipe.substr(path_or_recipe.rfind('/') + 1)};
    }
  } catch (const UserError&) {
    throw;
  } catch (const Error&) {  // no recipes are installed
  }
  user_error("{}{}: {} a recipe's name{}", prefix, path_or_recipe,
             fs::is_directory(path, error) ? "is a directory, neither a TOML file nor" : "is neither a file nor",
             hint(path_or_recipe));
}

// The values of one config file or row, without inherited values.
struct SourceValues {
  Source source;
  std::vector<toml::table> values;  // the row's sets before its own
  std::string made_for = {};
  std::vector<double> losses = {};
};

// Returns whether the key affects only what a run records, or its results only by rounding or chance.
bool keeps_losses(std::string_view key) {
  constexpr std::string_view kKeys[] = {"accumulate",       "checkpoint_every",
                                        "device",           "evaluate_every",
                                        "evaluate_tokens",  "gradient_accumulators",
                                        "implementation",   "keep_best",
                                        "keep_checkpoints", "log_every",
                                        "precision",        "sample_every",
                                        "sample_prompt",    "seed",
                                        "threads",          "timeout",
                                        "verify_every"};
  constexpr std::string_view kTrain = "train.";
  return key.starts_with(kTrain) && std::ranges::find(kKeys, key.substr(kTrain.size())) != std::end(kKeys);
}

// Returns the file's values. If the file is not a config, the error states what it is.
toml::table read_file(const fs::path& path) {
  try {
    return detail::parse_toml(read_text_file(path, kLargestConfig), path.string());
  } catch (const UserError& error) {
    if (path.extension() == ".toml") {
      throw;
    }
    if (path.extension() == ".safetensors") {
      user_error("{}: is a checkpoint; expected a config (a TOML file or a recipe's name)", path.string());
    }
    user_error(
        "{}; expected a config (a TOML file or a recipe's name); to train on this text, set data.train = [{}] in a "
        "config",
        error.what(), detail::in_quotes(path.filename().string()));
  }
}

// Returns "file.toml:3: ", the place of a key.
std::string place_of(const toml::table& values, std::string_view key, const std::string& origin) {
  return fmt::format("{}:{}: ", origin, values.find(key)->first.source().begin.line);
}

// Returns the value of a key that is not part of the config; `Value()` if the key is not set.
template <class Value>
Value own_value(const toml::table& values, std::string_view key, const std::string& origin, std::string_view expected) {
  const auto at = values.find(key);
  if (at == values.end()) {
    return {};
  }
  const toml::node& node = at->second;
  Value value;
  bool valid = false;
  if constexpr (std::is_same_v<Value, std::string>) {
    value = node.value<std::string>().value_or("");
    valid = !value.empty();
  } else if (const toml::array* const elements = node.as_array()) {
    for (const toml::node& element : *elements) {
      if (const auto one = element.value<typename Value::value_type>()) {
        value.push_back(*one);
      }
    }
    valid = value.size() == elements->size();
  }
  if (!valid) {
    user_error("{}{}: must be {}, got {}", place_of(values, key, origin), key, expected, detail::shown(node));
  }
  return value;
}

// Reads one layer, and sets `next` to the config that it inherits from.
SourceValues read_layer(const Source& source, std::optional<Source>& next) {
  toml::table file = read_file(source.path);
  const std::string origin = source.origin();
  SourceValues layer{.source = source, .values = {}};
  const toml::table* const rows = file["rows"].as_table();
  if (rows != nullptr && !source.row) {
    user_error("{}: holds recipes; expected the name of one, such as {}/{}", origin,
               fs::absolute(source.path).parent_path().filename().string(), rows->begin()->first.str());
  }
  next.reset();
  layer.made_for = own_value<std::string>(file, "made_for", origin, "a string");
  if (const std::string row = source.row.value_or(""); !row.empty()) {
    next = {.path = source.path, .row = ""};
    toml::table values = *file["rows"][row].as_table();
    for (const std::string& name :
         own_value<std::vector<std::string>>(values, "sets", origin, "names of sets of this file")) {
      const toml::table* const set = file["sets"][name].as_table();
      if (set == nullptr) {
        user_error("{}: sets: the file has no set {}", origin, name);
      }
      layer.values.push_back(*set);
    }
    layer.values.push_back(std::move(values));
  } else {
    layer.values.push_back(std::move(file));
  }
  toml::table& values = layer.values.back();
  if (const auto own = own_value<std::string>(values, "made_for", origin, "a string"); !own.empty()) {
    layer.made_for = own;
  }
  layer.losses = own_value<std::vector<double>>(values, "losses", origin, "a list of numbers");
  if (const auto base = own_value<std::string>(values, "base", origin, "a TOML file or a recipe's name");
      !base.empty()) {
    next = find_config(base, source.path.parent_path(), place_of(values, "base", origin) + "base: ");
  }
  for (const char* const key : {"base", "sets", "rows", "paper", "table", "row", "about", "made_for", "losses"}) {
    values.erase(key);
  }
  return layer;
}

// Returns the inheritance chain of a config, base first.
std::vector<SourceValues> read_layers(const Source& first) {
  std::vector<SourceValues> layers;
  std::vector<std::string> chain;
  for (std::optional<Source> next = first; next;) {
    const Source source = *next;
    std::error_code ignored;
    const bool seen = std::ranges::any_of(layers, [&](const SourceValues& layer) {
      return layer.source.row == source.row && fs::equivalent(layer.source.path, source.path, ignored);
    });
    chain.push_back(Source{source.path.lexically_normal(), source.row}.origin());
    if (seen) {
      user_error("{}: base: circular inheritance: {}", first.origin(), fmt::join(chain, " -> "));
    }
    if (layers.size() == kLongestChain) {
      user_error("{}: base: must lead to at most {} configs, got more", first.origin(), kLongestChain - 1);
    }
    layers.push_back(read_layer(source, next));
  }
  std::ranges::reverse(layers);
  return layers;
}

// Returns whether a command-line option has set `key`.
bool is_overridden(const GivenKeys& given, const char* key) {
  const auto found = given.find(key);
  return found != given.end() && detail::is_option(found->second);
}

void resolve_vocabulary(Config& config, const GivenKeys& given) {
  const bool model = given.contains("model.vocabulary_size");
  TokenizerOptions& tokenizer = config.tokenizer;
  const std::int64_t special = n_special_tokens(config.model.kind);
  if (!given.contains("tokenizer.vocabulary_size")) {
    if (model) {
      tokenizer.vocabulary_size = std::max<std::int64_t>(config.model.vocabulary_size - special, 0);
    } else if (tokenizer.kind == TokenizerKind::bytes) {
      tokenizer.vocabulary_size = kByteValues;
    } else if (tokenizer.kind == TokenizerKind::words) {
      tokenizer.vocabulary_size = 0;
    }
  }
  // tokenizer.vocabulary_size in the file may be meant for the tokenizer kind that the option replaces.
  if (tokenizer.kind == TokenizerKind::bytes && is_overridden(given, "tokenizer.kind") &&
      !is_overridden(given, "tokenizer.vocabulary_size")) {
    tokenizer.vocabulary_size = std::min(tokenizer.vocabulary_size, kByteValues);
  }
  config.vocabulary_follows_tokenizer = !model;
  if (!model && tokenizer.vocabulary_size > 0) {  // 0: all words of the text, so the size is not known yet
    const bool bytes = tokenizer.kind == TokenizerKind::bytes;
    const std::int64_t ids = bytes ? std::min(kByteValues, tokenizer.vocabulary_size) : tokenizer.vocabulary_size;
    config.model.vocabulary_size = ids + special;
  }
}

// If train.steps on the command line is below a config file's warm-up, shortens the warm-up to it.
void shorten_warmup(TrainOptions& train, const GivenKeys& given) {
  if (train.warmup_steps > train.steps && is_overridden(given, "train.steps") &&
      !is_overridden(given, "train.warmup_steps")) {
    log_info("train.warmup_steps: reduced from {} to {}, the number of train.steps", train.warmup_steps, train.steps);
    train.warmup_steps = train.steps;
  }
}

Config read_config(const Source& source, const std::vector<std::string>& overrides) {
  Config config;
  for (const SourceValues& layer : read_layers(source)) {
    const fs::path folder = layer.source.row ? fs::path() : fs::absolute(layer.source.path).parent_path();
    for (const toml::table& values : layer.values) {
      detail::read_onto(config, values, layer.source.origin(), folder);
    }
    if (!layer.made_for.empty()) {
      config.made_for = layer.made_for;
    }
    config.recorded_losses = layer.losses;
  }
  change(config, overrides, "--set");
  return config;
}

}  // namespace

Config load_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides) {
  const Source source = find_config(path_or_recipe, {}, "");
  Config config = read_config(source, overrides);
  check(config, source.origin());
  return config;
}

Config load_run_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides) {
  const Source source = find_config(path_or_recipe, {}, "");
  Config config = read_config(source, overrides);
  const std::string name = source.origin();
  config.train.start_from.empty() ? check(config, name) : detail::check_apart_from_model(config, name);
  return config;
}

void change(Config& config, const std::vector<std::string>& assignments, const std::string& option) {
  for (const std::string& assignment : assignments) {
    const std::string key = set_key(config, assignment, option);
    config.given[key] = option;
    if (!keeps_losses(key)) {
      config.recorded_losses.clear();
    }
  }
  detail::resolve(config, config.given);
  shorten_warmup(config.train, config.given);
  Fields fields;
  describe(fields, config);
  fields.root().for_each(
      [](const std::string&, const Field& field) { detail::make_absolute(field, fs::current_path()); });
}

namespace detail {

bool is_option(std::string_view place) {
  return place.starts_with("--");
}

void resolve(Config& config, const GivenKeys& given) {
  resolve_vocabulary(config, given);
  resolve_model(config.model, given);
}

void resolve_model(ModelOptions& model, const GivenKeys& given) {
  if (model.kind == ModelKind::vision && model.has_whole_patches() && !given.contains("model.context_length")) {
    model.context_length = model.patches();
  }
  if (!given.contains("model.attention.top_k")) {
    model.attention.projection->derive_top_k(model.attention);
  }
}

}  // namespace detail
}  // namespace headroom::config
