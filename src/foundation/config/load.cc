#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "foundation/core/files/folders.h"
#include "foundation/core/machine/log.h"
#include "foundation/core/machine/system.h"
#include "foundation/core/text/message.h"
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
  bool recipe = false;  // a shipped recipe, given by name
};

// Finds a config by its path relative to `folder`, or a recipe by its name. Error messages start with `prefix`.
Source find_config(const std::string& path_or_recipe, const fs::path& folder, const std::string& prefix) {
  const fs::path path = folder / path_or_recipe;
  std::error_code error;
  if (fs::is_regular_file(path, error)) {
    return {.path = path};
  }
  std::vector<std::string> names;
  try {
    names = recipe_names();
  } catch (const Error&) {  // no recipes are installed
  }
  if (std::find(names.begin(), names.end(), path_or_recipe) != names.end()) {
    return {.path = fs::path(home_folder()) / "recipes" / (path_or_recipe + ".toml"), .recipe = true};
  }
  const std::string close = nearest_recipe(path_or_recipe, names);
  std::string hint = close.empty() ? download_hint(path_or_recipe) : ", did you mean " + close + "?";
  if (hint.empty()) {
    hint = "; `headroom recipes` lists the recipes, and `headroom import` converts a downloaded model";
  }
  user_error("{}{}: {} a recipe's name{}", prefix, path_or_recipe,
             fs::is_directory(path, error) ? "is a directory, neither a TOML file nor" : "is neither a file nor", hint);
}

// The values of one config file, without inherited values.
struct Layer {
  Source source;
  toml::table values;
  std::string made_for;
  std::vector<double> recorded_losses;
};

// Returns the data set that a recipe was made for: "the files of C4" if its text has the comment "Set data.train and
// data.validation to the files of C4; without them ..."; empty without such a comment.
std::string made_for(std::string_view text) {
  constexpr std::string_view kRemark = "Set data.train and data.validation to ";
  const std::size_t at = text.find(kRemark);
  if (at == std::string_view::npos) {
    return "";
  }
  text.remove_prefix(at + kRemark.size());
  return std::string(text.substr(0, std::min(text.find_first_of(";\n"), text.size())));
}

// Returns the figures of the comment "# losses: 5.1 4.2 ..."; empty without one, or if it holds anything else.
std::vector<double> recorded_losses(std::string_view text) {
  constexpr std::string_view kRemark = "\n# losses: ";
  const std::size_t at = text.find(kRemark);
  if (at == std::string_view::npos) {
    return {};
  }
  text.remove_prefix(at + kRemark.size());
  std::istringstream line{std::string(text.substr(0, text.find('\n')))};
  std::vector<double> losses{std::istream_iterator<double>(line), {}};
  return line.eof() ? losses : std::vector<double>();
}

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
  return key.starts_with(kTrain) &&
         std::find(std::begin(kKeys), std::end(kKeys), key.substr(kTrain.size())) != std::end(kKeys);
}

// Removes the key `base` from the values and returns the config that it names; nullopt if there is no such key.
std::optional<Source> take_base(Layer& layer) {
  const std::string origin = layer.source.path.string();
  const toml::node* const base = layer.values.get("base");
  if (base == nullptr) {
    return std::nullopt;
  }
  const std::string prefix = fmt::format("{}:{}: base: ", origin, base->source().begin.line);
  if (!base->is_string() || base->as_string()->get().empty()) {
    user_error("{}must be a TOML file or a recipe's name, got {}", prefix, detail::shown(*base));
  }
  const std::string name = base->as_string()->get();
  layer.values.erase("base");
  return find_config(name, layer.source.path.parent_path(), prefix);
}

// Returns the file's values and its text. If the file is not a config, the error states what it is.
std::pair<toml::table, std::string> read_file(const fs::path& path) {
  try {
    std::string text = read_text_file(path, kLargestConfig);
    toml::table values = detail::parse_toml(text, path.string());
    return {std::move(values), std::move(text)};
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

// Returns the inheritance chain of a config, base first.
std::vector<Layer> read_layers(const Source& first) {
  std::vector<Layer> layers;
  std::vector<std::string> chain;
  for (std::optional<Source> next = first; next;) {
    std::error_code ignored;
    const bool seen = std::any_of(layers.begin(), layers.end(), [&](const Layer& layer) {
      return fs::equivalent(layer.source.path, next->path, ignored);
    });
    chain.push_back(next->path.lexically_normal().string());
    if (seen) {
      user_error("{}: base: circular inheritance: {}", first.path.string(), fmt::join(chain, " -> "));
    }
    if (layers.size() == kLongestChain) {
      user_error("{}: base: must lead to at most {} configs, got more", first.path.string(), kLongestChain - 1);
    }
    auto [values, text] = read_file(next->path);
    layers.push_back({.source = *next,
                      .values = std::move(values),
                      .made_for = made_for(text),
                      .recorded_losses = recorded_losses(text)});
    next = take_base(layers.back());
  }
  std::reverse(layers.begin(), layers.end());
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

}  // namespace

std::vector<std::string> recipe_names() {
  const fs::path folder = fs::path(home_folder()) / "recipes";
  std::vector<std::string> names;
  const std::error_code error = walk_folder(folder, [&](const fs::directory_entry& entry) {
    if (entry.path().extension() == ".toml") {
      names.push_back(entry.path().lexically_relative(folder).replace_extension().generic_string());
    }
    return true;
  });
  if (error) {
    fail("{}: cannot be listed: {}", folder.string(), error.message());
  }
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

Config read_config(const Source& source, const std::vector<std::string>& overrides) {
  Config config;
  for (const Layer& layer : read_layers(source)) {
    const fs::path folder = layer.source.recipe ? fs::path() : fs::absolute(layer.source.path).parent_path();
    detail::read_onto(config, layer.values, layer.source.path.string(), folder);
    if (!layer.made_for.empty()) {
      config.made_for = layer.made_for;
    }
    config.recorded_losses = layer.recorded_losses;
  }
  change(config, overrides, "--set");
  return config;
}

}  // namespace

Config load_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides) {
  const Source source = find_config(path_or_recipe, {}, "");
  Config config = read_config(source, overrides);
  check(config, source.path.string());
  return config;
}

Config load_run_config(const std::string& path_or_recipe, const std::vector<std::string>& overrides) {
  const Source source = find_config(path_or_recipe, {}, "");
  Config config = read_config(source, overrides);
  const std::string name = source.path.string();
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
