#include <algorithm>
#include <optional>
#include <string>

#include "assign.h"
#include "foundation/core/text/blanks.h"
#include "foundation/core/text/utf8.h"
#include "given.h"
#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "nearest.h"
#include "parse.h"

namespace headroom::config {
namespace {

// Those of a line: an unquoted value may end in a line end.
constexpr std::string_view kBlanks = " \t";

// The field with this dotted name and what is wrong when there is none.
const Field& find_field(const Fields& all, const std::string& dotted, const std::string& place) {
  const std::vector<Field>* fields = &all.fields();
  const std::vector<Fields::Table>* tables = &all.tables();
  std::size_t start = 0;
  for (;;) {
    const std::size_t dot = std::min(dotted.find('.', start), dotted.size());
    const std::string name = dotted.substr(start, dot - start);
    const bool last = dot == dotted.size();
    const auto table = std::find_if(tables->begin(), tables->end(), [&](const auto& t) { return t.key == name; });
    const auto field = std::find_if(fields->begin(), fields->end(), [&](const Field& f) { return f.key == name; });
    if (last && field != fields->end()) {
      return *field;
    }
    if (last && table != tables->end()) {
      user_error("{}{}: is a table, set one of its keys: {}.{}", place, dotted, dotted, table->fields.front().key);
    }
    if (table == tables->end()) {
      const std::string path = start == 0 ? "" : dotted.substr(0, start - 1);
      const std::string close = detail::nearest_key(all, path, last ? name : dotted.substr(dotted.rfind('.') + 1));
      user_error("{}{}: unknown key{}", place, dotted, close.empty() ? "" : ", did you mean " + close + "?");
    }
    fields = &table->fields;
    tables = &table->tables;
    start = dot + 1;
  }
}

// Reads `text` as the one value of a TOML key; nothing when it is none.
std::optional<toml::table> as_toml(std::string_view text) {
  try {
    toml::table table = detail::parse_toml(fmt::format("value = {}", text), "--set");
    return table.size() == 1 ? std::optional(std::move(table)) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// [v, o] without quotes, as shells leave it.
toml::array bare_list(std::string_view text) {
  toml::array list;
  for (text = trimmed(text.substr(1, text.size() - 2), kBlanks); !text.empty();) {
    const std::size_t comma = std::min(text.find(','), text.size());
    list.push_back(std::string(trimmed(text.substr(0, comma), kBlanks)));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return list;
}

}  // namespace

std::string set_key(Config& config, std::string_view assignment, std::string_view origin) {
  const std::string place = fmt::format("{}: ", origin);
  const std::size_t equals = assignment.find('=');
  std::string key(trimmed(assignment.substr(0, equals), kBlanks));
  if (equals == std::string_view::npos || key.empty()) {
    user_error("{}\"{}\": must be key=value, as in train.steps=500", place, assignment);
  }
  const std::string_view text = trimmed(assignment.substr(equals + 1), kBlanks);
  if (!is_utf8(text)) {
    user_error("{}{}: the value is not valid UTF-8 text", place, key);
  }
  Fields fields;
  describe(fields, config);
  const Field& field = find_field(fields, key, place);
  const std::optional<toml::table> table = as_toml(text);
  const bool wants_text = std::holds_alternative<std::string*>(field.slot);
  if (table && (!wants_text || (*table)["value"].is_string())) {
    detail::assign(field, *table->get("value"), place, key);
  } else if (!wants_text && text.starts_with('[') && text.ends_with(']') && text.size() >= 2) {
    detail::assign(field, bare_list(text), place, key);
  } else {
    detail::assign(field, toml::value<std::string>(std::string(text)), place, key);
  }
  if (key != "model.context_length") {
    detail::decide_context(config.model, config.given);
  }
  return key;
}

}  // namespace headroom::config
