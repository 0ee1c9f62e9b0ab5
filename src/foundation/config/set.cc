// Assignments on the command line: key=value and, for variations, key=value,value,...
#include <algorithm>
#include <optional>
#include <string>

#include "foundation/core/text/format.h"
#include "foundation/core/text/utf8.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "parse.h"

namespace headroom::config {
namespace {

constexpr std::string_view kBlanks = " \t";  // without line ends, which may end an unquoted value

const Field& find_field(const Table& all, const std::string& dotted, const std::string& place) {
  const Table* table = &all;
  std::size_t start = 0;
  for (std::size_t dot = dotted.find('.'); dot != std::string::npos; dot = dotted.find('.', start)) {
    const Table* const inner = table->find_table(dotted.substr(start, dot - start));
    if (inner == nullptr) {
      break;
    }
    table = inner;
    start = dot + 1;
  }
  const std::string name = dotted.substr(start);
  if (const Field* const field = table->find(name)) {
    return *field;
  }
  if (const Table* const inner = table->find_table(name)) {
    user_error("{}{}: is a table; set one of its keys, such as {}.{}", place, dotted, dotted,
               inner->fields.front().key);
  }
  const std::string path = start == 0 ? "" : dotted.substr(0, start - 1);
  const std::string close = detail::nearest_key(all, path, dotted.substr(dotted.rfind('.') + 1));
  user_error("{}{}: unknown key{}", place, dotted, close.empty() ? "" : ", did you mean " + close + "?");
}

// Parses `text` as the value of a key "value"; returns nullopt if it is not a single TOML value.
std::optional<toml::table> as_toml(std::string_view text) {
  try {
    toml::table table = detail::parse_toml(fmt::format("value = {}", text), "--set");
    return table.size() == 1 ? std::optional(std::move(table)) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Parses a list without quotes, as shells pass it: [v, o].
toml::array bare_list(std::string_view text) {
  toml::array list;
  for (text = trimmed(text.substr(1, text.size() - 2), kBlanks); !text.empty();) {
    const std::size_t comma = std::min(text.find(','), text.size());
    list.push_back(std::string(trimmed(text.substr(0, comma), kBlanks)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

// Returns the value that `text` means: TOML, a list without quotes, or a string.
toml::table value_of(std::string_view text, bool wants_text) {
  std::optional<toml::table> table = as_toml(text);
  if (table && (!wants_text || (*table)["value"].is_string())) {
    return std::move(*table);
  }
  if (!wants_text && text.starts_with('[') && text.ends_with(']') && text.size() >= 2) {
    return toml::table{{"value", bare_list(text)}};
  }
  return toml::table{{"value", std::string(text)}};
}

constexpr std::string_view kLayers = "model.layers.";

// Sets "model.layers.1.attention.window".
void set_layer_key(std::vector<LayerOptions>& layers, const std::string& key, std::string_view text,
                   const std::string& place) {
  const std::size_t begin = kLayers.size(), dot = std::min(key.find('.', begin), key.size());
  const auto index = whole_number(std::string_view(key).substr(begin, dot - begin));
  if (!index || *index >= std::ssize(layers) || dot == key.size()) {
    user_error("{}{}: must be model.layers.N.KEY, where N is an entry of model.layers, of which there {} {}", place,
               key, layers.size() == 1 ? "is" : "are", layers.size());
  }
  detail::assign_layer_key(layers[static_cast<std::size_t>(*index)], key.substr(dot + 1),
                           *value_of(text, false).get("value"), place, key.substr(0, dot));
}

// Returns the end of a value: the next comma outside brackets and quotes, or the end of the text.
std::size_t value_end(std::string_view text, std::size_t at) {
  int depth = 0;
  char quote = 0;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quote != 0) {
      quote = c == quote ? 0 : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth <= 0) {
      break;
    }
  }
  return at;
}

}  // namespace

std::string set_key(Config& config, std::string_view assignment, std::string_view origin) {
  const std::string place = fmt::format("{}: ", origin);
  const std::size_t equals = assignment.find('=');
  const std::string written(trimmed(assignment.substr(0, equals), kBlanks));
  if (equals == std::string_view::npos || written.empty()) {
    user_error("{}\"{}\": must be key=value, as in train.steps=500", place, assignment);
  }
  const std::string_view text = trimmed(assignment.substr(equals + 1), kBlanks);
  if (!is_utf8(text)) {
    user_error("{}{}: the value is not valid UTF-8", place, written);
  }
  std::string key = detail::current_name(written);
  if (key.starts_with(kLayers)) {
    set_layer_key(config.model.layers, key, text, place);
    return key;
  }
  Fields fields;
  describe(fields, config);
  const Field& field = find_field(fields.root(), key, place);
  const toml::table value = value_of(text, std::holds_alternative<std::string*>(field.slot));
  detail::assign(field, *value.get("value"), place, written);
  GivenKeys given = config.given;
  given[key] = origin;
  detail::resolve_model(config.model, given);
  return key;
}

Variation parse_variation(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  Variation variation;
  if (equals != std::string_view::npos) {
    variation.key = text.substr(0, equals);
    for (std::size_t begin = equals + 1; begin <= text.size();) {
      const std::size_t end = value_end(text, begin);
      variation.values.emplace_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const bool empty = std::any_of(variation.values.begin(), variation.values.end(),
                                 [](const std::string& value) { return value.empty(); });
  if (variation.key.empty() || variation.values.empty() || empty) {
    user_error("{} {}: must be KEY=VALUE,VALUE,..., as in train.learning_rate=3e-4,1e-3", option, text);
  }
  return variation;
}

}  // namespace headroom::config
