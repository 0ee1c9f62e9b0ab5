// Layers that differ inside one model: model.layers and its shorthand, window_pattern.
#include "parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "foundation/core/text/format.h"
#include "foundation/core/transformed.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::config {
namespace {

constexpr std::size_t kMostEntries = 1024;  // each is checked separately

// Parses "local:global" into entries: one local layer, then all global ones, then the remaining local ones. Returns
// nullopt for other text, for numbers above 65536, and if both are 0.
std::optional<std::vector<LayerOptions>> windows_of(std::string_view text) {
  const std::size_t colon = std::min(text.find(':'), text.size());
  const auto local = whole_number(text.substr(0, colon));
  const auto global = colon == text.size() ? std::nullopt : whole_number(text.substr(colon + 1));
  if (!local || !global || *local > 65536 || *global > 65536 || *local + *global == 0) {
    return std::nullopt;
  }
  std::vector<LayerOptions> entries = {{.repeat = std::min<std::int64_t>(*local, 1), .attention = {}, .mlp = {}},
                                       {.repeat = *global, .attention = {{"window", "0"}}, .mlp = {}},
                                       {.repeat = std::max<std::int64_t>(*local - 1, 0), .attention = {}, .mlp = {}}};
  std::erase_if(entries, [](const LayerOptions& entry) { return entry.repeat == 0; });
  return entries;
}

std::vector<LayerOptions> entries_of(const ModelOptions& model) {
  if (!model.layers.empty()) {
    return model.layers;
  }
  const auto windows = windows_of(model.attention.window_pattern);
  if (!windows) {
    user_error("model.attention.window_pattern: must be local:global such as 1:1 or 3:1, got \"{}\"",
               model.attention.window_pattern);
  }
  return *windows;
}

// Returns the field `key` of an options struct. Throws UserError if there is none.
const Field& field_of(const Fields& fields, const std::string& key, const std::string& prefix,
                      const std::string& dotted) {
  const Field* const field = fields.root().find(key);
  if (field == nullptr) {
    std::string close = detail::nearest_key(fields.root(), "", key);
    close.erase(0, close.rfind('.') + 1);  // the message names the table already
    user_error("{}{}.{}: unknown key{}", prefix, dotted, key, close.empty() ? "" : ", did you mean " + close + "?");
  }
  return *field;
}

template <class Options>
void apply(const LayerOptions::Keys& keys, Options& options, const std::string& dotted) {
  if (keys.empty()) {
    return;
  }
  Fields fields;
  describe(fields, options);
  for (const auto& [key, text] : keys) {
    const toml::table value = detail::parse_toml("value = " + text, dotted);
    detail::assign(field_of(fields, key, "", dotted), *value.get("value"), "", fmt::format("{}.{}", dotted, key));
  }
}

ModelOptions with_entry(const ModelOptions& model, const LayerOptions& entry, const std::string& dotted) {
  ModelOptions layer = model;
  layer.layers.clear();
  layer.attention.window_pattern = AttentionOptions().window_pattern;
  apply(entry.attention, layer.attention, dotted + ".attention");
  apply(entry.mlp, layer.mlp, dotted + ".mlp");
  if (!entry.attention.empty() && !entry.attention.contains("top_k")) {
    layer.attention.projection->derive_top_k(layer.attention);
  }
  return layer;
}

// Checks one value of the table `dotted` and stores it as TOML.
template <class Options>
void store(LayerOptions::Keys& keys, const std::string& key, const toml::node& value, const std::string& prefix,
           const std::string& dotted) {
  Options options;
  Fields fields;
  describe(fields, options);
  if (key == "window_pattern") {
    user_error("{}{}.{}: must not be set for some of the layers; set window", prefix, dotted, key);
  }
  const Field& field = field_of(fields, key, prefix, dotted);
  detail::assign(field, value, prefix, dotted + "." + key);
  keys[key] = detail::spelled(field);
}

template <class Options>
void store_all(LayerOptions::Keys& keys, const toml::node& value, const std::string& prefix,
               const std::string& dotted) {
  if (!value.is_table()) {
    user_error("{}{}: must be a table, got {}", prefix, dotted, detail::shown(value));
  }
  for (const auto& [key, inner] : *value.as_table()) {
    store<Options>(keys, std::string(key.str()), inner, prefix, dotted);
  }
}

[[noreturn]] void refuse_layer_key(const std::string& key, const std::string& prefix, const std::string& path) {
  ModelOptions model;
  Fields fields;
  describe(fields, model);
  if (fields.root().find(key) != nullptr) {
    user_error("{}{}: must not be set for some of the layers, which have it in common; set model.{}", prefix, path,
               key);
  }
  user_error("{}{}: unknown key; must be repeat, attention or mlp", prefix, path);
}

std::string table_text(const LayerOptions::Keys& keys) {
  std::string text;
  for (const auto& [key, value] : keys) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, value);
  }
  return "{" + text + "}";
}

}  // namespace

namespace detail {

std::int64_t period_of(const std::vector<LayerOptions>& entries) {
  return sum_over(entries, &LayerOptions::repeat);
}

std::size_t entry_at(const std::vector<LayerOptions>& entries, std::int64_t index) {
  std::int64_t place = index % period_of(entries);
  std::size_t entry = 0;
  for (; place >= entries[entry].repeat; ++entry) {
    place -= entries[entry].repeat;
  }
  return entry;
}

std::int64_t period_of(const ModelOptions& model) {
  return period_of(entries_of(model));
}

bool is_window_pattern(std::string_view text) {
  return windows_of(text).has_value();
}

ModelOptions of_entry(const ModelOptions& model, std::size_t entry) {
  return with_entry(model, model.layers[entry], entry_name(entry));
}

void assign_layer_key(LayerOptions& layer, const std::string& key, const toml::node& value, const std::string& prefix,
                      const std::string& dotted) {
  const std::string path = dotted + "." + key;
  if (key == "repeat") {
    Fields fields;
    fields.add(key, layer.repeat, between(1, 65536), "number of such layers in a row");
    assign(fields.fields().front(), value, prefix, path);
  } else if (key == "attention" || key == "mlp") {
    LayerOptions::Keys& keys = key == "mlp" ? layer.mlp : layer.attention;
    keys.clear();
    (key == "mlp" ? store_all<MlpOptions> : store_all<AttentionOptions>)(keys, value, prefix, path);
  } else if (key.starts_with("attention.")) {
    store<AttentionOptions>(layer.attention, key.substr(10), value, prefix, dotted + ".attention");
  } else if (key.starts_with("mlp.")) {
    store<MlpOptions>(layer.mlp, key.substr(4), value, prefix, dotted + ".mlp");
  } else {
    refuse_layer_key(key, prefix, path);
  }
}

void assign_layers(std::vector<LayerOptions>& layers, const toml::node& value, const std::string& prefix,
                   const std::string& dotted) {
  std::vector<LayerOptions> entries;
  const toml::array* const list = value.as_array();
  if (list == nullptr) {
    user_error("{}{}: must be a list of tables, got {}", prefix, dotted, shown(value));
  }
  if (list->size() > kMostEntries) {
    user_error("{}{}: must have at most {} tables, got {}", prefix, dotted, kMostEntries, list->size());
  }
  for (const toml::node& entry : *list) {
    const std::string name = fmt::format("{}.{}", dotted, entries.size());
    if (!entry.is_table()) {
      user_error("{}{}: must be a table, got {}", prefix, name, shown(entry));
    }
    LayerOptions& layer = entries.emplace_back();
    for (const auto& [key, inner] : *entry.as_table()) {
      assign_layer_key(layer, std::string(key.str()), inner, prefix, name);
    }
  }
  layers = std::move(entries);
}

std::string spelled(const std::vector<LayerOptions>& layers) {
  std::string text;
  for (const LayerOptions& layer : layers) {
    std::string entry = layer.repeat == 1 ? "" : fmt::format("repeat = {}", layer.repeat);
    for (const auto& [name, keys] : {std::pair("attention", &layer.attention), std::pair("mlp", &layer.mlp)}) {
      if (!keys->empty()) {
        entry += fmt::format("{}{} = {}", entry.empty() ? "" : ", ", name, table_text(*keys));
      }
    }
    text += fmt::format("{}{{{}}}", text.empty() ? "" : ", ", entry);
  }
  return "[" + text + "]";
}

std::optional<std::string> layer_value(const std::vector<LayerOptions>& layers, std::string_view dotted) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::string entry = entry_name(i) + ".";
    if (dotted == entry + "repeat") {
      return fmt::format("{}", layers[i].repeat);
    }
    for (const auto& [name, keys] : {std::pair("attention", &layers[i].attention), std::pair("mlp", &layers[i].mlp)}) {
      const std::string table = entry + name;
      if (dotted == table) {
        return table_text(*keys);
      }
      const bool inside = dotted.starts_with(table + ".");
      if (const auto found = inside ? keys->find(std::string(dotted.substr(table.size() + 1))) : keys->end();
          found != keys->end()) {
        const std::string& value = found->second;
        return value.starts_with('"') ? value.substr(1, value.size() - 2) : value;
      }
    }
  }
  return std::nullopt;
}

}  // namespace detail

ModelOptions ModelOptions::of_layer(std::int64_t index) const {
  const std::vector<LayerOptions> entries = entries_of(*this);
  const std::size_t entry = detail::entry_at(entries, index);
  return with_entry(*this, entries[entry], detail::entry_name(entry));
}

std::vector<std::pair<ModelOptions, std::int64_t>> ModelOptions::kinds_of_layers(std::int64_t n) const {
  const std::vector<LayerOptions> entries = entries_of(*this);
  std::vector<std::pair<ModelOptions, std::int64_t>> kinds;
  std::vector<std::size_t> first;  // the entry of each kind
  for (std::int64_t layer = 0; layer < n; ++layer) {
    const LayerOptions& entry = entries[detail::entry_at(entries, layer)];
    const auto same = std::ranges::find_if(first, [&](std::size_t other) {
      return entries[other].attention == entry.attention && entries[other].mlp == entry.mlp;
    });
    if (same != first.end()) {
      ++kinds[static_cast<std::size_t>(same - first.begin())].second;
    } else {
      first.push_back(detail::entry_at(entries, layer));
      kinds.emplace_back(of_layer(layer), 1);
    }
  }
  return kinds;
}

std::vector<std::int64_t> ModelOptions::key_owners(std::int64_t n) const {
  const std::vector<LayerOptions> entries = entries_of(*this);
  std::vector<AttentionOptions> options;
  for (std::size_t entry = 0; entry < entries.size(); ++entry) {
    options.push_back(with_entry(*this, entries[entry], detail::entry_name(entry)).attention);
  }
  std::vector<std::int64_t> owners;
  for (std::int64_t layer = 0; layer < n; ++layer) {
    const AttentionOptions& a = options[detail::entry_at(entries, layer)];
    const std::int64_t below = layer - a.share_kv;
    owners.push_back(!a.has_heads() || below < 0 ? -1
                     : below == layer            ? layer
                                                 : owners[static_cast<std::size_t>(below)]);
  }
  return owners;
}

void ModelOptions::require_no_pattern(std::string_view what) const {
  if (!layers.empty()) {
    user_error("{}: model.layers: must be [], got {} kinds of layers; only models whose layers are alike are supported",
               what, layers.size());
  }
  if (n_groups != 0) {
    user_error(
        "{}: model.n_groups: must be 0, got {}; only models whose layers have their own parameters are supported", what,
        n_groups);
  }
}

std::vector<BalanceLoss> ModelOptions::layer_balance_losses() const {
  std::vector<BalanceLoss> all;
  if (attention.has_heads()) {
    all = attention.projection->balance_losses(attention);
  }
  const std::vector<BalanceLoss> of_mlp = mlp.balance_losses();
  all.insert(all.end(), of_mlp.begin(), of_mlp.end());
  return all;
}

std::vector<BalanceLoss> ModelOptions::balance_losses() const {
  std::vector<BalanceLoss> all;
  for (const auto& [layer, count] : kinds_of_layers(std::max(n_layers, decoder_layers()))) {
    for (const BalanceLoss& loss : layer.layer_balance_losses()) {
      if (std::ranges::none_of(all, [&](const BalanceLoss& other) { return other.name == loss.name; })) {
        all.push_back(loss);
      }
    }
  }
  return all;
}

namespace {

template <class Options>
LayerOptions::Keys keys_that_differ(const Options& options, const Options& base) {
  const auto spelled_keys = [](Options of) {
    LayerOptions::Keys keys;
    Fields fields;
    describe(fields, of);
    fields.root().for_each([&](const std::string& key, const Field& field) { keys[key] = detail::spelled(field); });
    return keys;
  };
  LayerOptions::Keys keys = spelled_keys(options);
  const LayerOptions::Keys before = spelled_keys(base);
  std::erase_if(keys, [&](const auto& entry) {
    return entry.first == "window_pattern" || before.at(entry.first) == entry.second;
  });
  return keys;
}

}  // namespace

LayerOptions::Keys differing_keys(const AttentionOptions& options, const AttentionOptions& base) {
  return keys_that_differ(options, base);
}

LayerOptions::Keys differing_keys(const MlpOptions& options, const MlpOptions& base) {
  return keys_that_differ(options, base);
}

}  // namespace headroom::config
