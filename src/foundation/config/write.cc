// Writes a config as TOML or as a flat list, and copies values between configs.
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <type_traits>
#include <variant>

#include "foundation/core/text/format.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "parse.h"

namespace headroom::config {
namespace {

// Returns the comment to write after a key with this value ("": none), or nullopt to omit the key.
using Comment = std::function<std::optional<std::string>(const std::string& key, const std::string& value)>;

void write_table(const std::string& path, const Table& table, const Comment& comment, std::string& text) {
  std::string lines;
  for (const Field& field : table.fields) {
    const std::string value = detail::spelled(field);
    if (const std::optional<std::string> behind = comment(path + "." + field.key, value)) {
      lines += field.key + " = " + value + (behind->empty() ? "" : "  # " + printable(*behind)) + "\n";
    }
  }
  if (!lines.empty()) {
    text += (text.empty() ? "[" : "\n[") + path + "]\n" + lines;
  }
  for (const Table& inner : table.tables) {
    write_table(path.empty() ? inner.key : path + "." + inner.key, inner, comment, text);
  }
}

void write(const Config& config, const Comment& comment, std::string& text) {
  Config copy = config;  // fields refer to a mutable config
  Fields fields;
  describe(fields, copy);
  write_table("", fields.root(), comment, text);
}

// Whether the selected parts read the field.
bool is_read(const Table& table, const Field& field) {
  if (field.readers.empty()) {
    return true;
  }
  const std::string chosen = std::get<Choice>(table.find(field.choice)->slot).get();
  return std::ranges::find(field.readers, chosen) != field.readers.end();
}

void add_differing(const std::string& path, const Table& a, const Table& b, std::vector<std::string>& keys) {
  for (std::size_t i = 0; i < a.fields.size(); ++i) {
    const bool matters = is_read(a, a.fields[i]) || is_read(b, b.fields[i]);
    if (matters && detail::spelled(a.fields[i]) != detail::spelled(b.fields[i])) {
      keys.push_back(path + a.fields[i].key);
    }
  }
  for (std::size_t i = 0; i < a.tables.size(); ++i) {
    add_differing(path + a.tables[i].key + ".", a.tables[i], b.tables[i], keys);
  }
}

}  // namespace

std::vector<std::string> differing_keys(const ModelOptions& a, const ModelOptions& b) {
  ModelOptions copy_of_a = a, copy_of_b = b;  // fields refer to mutable options
  Fields fields_of_a, fields_of_b;
  describe(fields_of_a, copy_of_a);
  describe(fields_of_b, copy_of_b);
  std::vector<std::string> keys;
  add_differing("model.", fields_of_a.root(), fields_of_b.root(), keys);
  return keys;
}

bool sets_range(std::string_view key) {
  return key.starts_with("model.attention.window") ||
         (key.starts_with("model.attention.rope_") && key != "model.attention.rope_fraction");
}

std::string to_toml(const Config& config, bool sources) {
  std::string text;
  const auto source_of = [&](const std::string& key, const std::string& value) -> std::optional<std::string> {
    if (key == "model.layers" && value == "[]") {
      return std::nullopt;
    }
    const auto source = config.given.find(key);
    return !sources || source == config.given.end() ? "" : source->second;
  };
  write(config, source_of, text);
  return text;
}

std::string changes_to_toml(const Config& config, const Config& base, const std::string& name) {
  std::map<std::string, std::string> old;
  std::string text;
  const auto collect = [&](const std::string& key, const std::string& value) -> std::optional<std::string> {
    old[key] = value;
    return "";
  };
  write(base, collect, text);
  text = "base = " + detail::in_quotes(name) + "\n";
  const auto changed = [&](const std::string& key, const std::string& value) -> std::optional<std::string> {
    const bool follows = key == "model.vocabulary_size" && config.vocabulary_follows_tokenizer;
    return follows || old[key] == value ? std::nullopt : std::optional("was " + old[key]);
  };
  write(config, changed, text);
  return text;
}

std::string base_name(const std::string& path_or_recipe, const std::filesystem::path& folder) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_or_recipe, error)) {
    return path_or_recipe;
  }
  const std::filesystem::path relative =
      folder.empty() ? std::filesystem::path() : std::filesystem::relative(path_or_recipe, folder, error);
  return relative.empty() ? std::filesystem::absolute(path_or_recipe).lexically_normal().string() : relative.string();
}

std::vector<std::pair<std::string, std::string>> flatten(const Config& config) {
  Config copy = config;  // fields refer to a mutable config
  Fields fields;
  describe(fields, copy);
  std::vector<std::pair<std::string, std::string>> values;
  fields.root().for_each([&values](const std::string& key, const Field& field) {
    values.emplace_back(key, std::visit(
                                 [](const auto& slot) -> std::string {
                                   using Slot = std::decay_t<decltype(slot)>;
                                   if constexpr (std::is_same_v<Slot, Choice>) {
                                     return slot.get();
                                   } else if constexpr (std::is_same_v<Slot, std::vector<LayerOptions>*>) {
                                     return detail::spelled(*slot);
                                   } else {
                                     return fmt::format("{}", *slot);
                                   }
                                 },
                                 field.slot));
  });
  return values;
}

std::string value_of(const Config& config, const std::string& key) {
  if (const std::optional<std::string> of_layer = detail::layer_value(config.model.layers, key)) {
    return *of_layer;
  }
  const std::vector<std::pair<std::string, std::string>> all = flatten(config);
  const auto found = std::ranges::find_if(all, [&](const auto& entry) { return entry.first == key; });
  return found != all.end() ? found->second : throw Error("config: no key " + key);
}

void take_values(Config& to, const Config& from, const std::function<bool(std::string_view key)>& wanted) {
  Config source = from;  // fields refer to a mutable config
  Fields to_fields, from_fields;
  describe(to_fields, to);
  describe(from_fields, source);
  std::map<std::string, const Field*> sources;
  from_fields.root().for_each([&](const std::string& key, const Field& field) { sources[key] = &field; });
  to_fields.root().for_each([&](const std::string& key, const Field& field) {
    if (!wanted(key)) {
      return;
    }
    std::visit(
        [&](const auto& slot) {
          using Slot = std::decay_t<decltype(slot)>;
          const Slot& value = std::get<Slot>(sources.at(key)->slot);
          if constexpr (std::is_same_v<Slot, Choice>) {
            slot.set(value.get());
          } else {
            *slot = *value;
          }
        },
        field.slot);
  });
}

}  // namespace headroom::config
