#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "parse.h"

namespace headroom::config {
namespace {

constexpr std::size_t kIndent = 36, kColumns = 100;

// Appends `text` to `line`, wrapped at kColumns and indented by kIndent. A final parenthesis is not broken if it fits
// on one line.
void wrap(std::string line, std::string_view text, std::string& out) {
  const std::size_t last = text.ends_with(')') ? text.rfind('(') : std::string_view::npos;
  const bool whole = last != std::string_view::npos && kIndent + text.size() - last <= kColumns;
  for (std::size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
    end = whole && begin == last ? text.size() : std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const bool first = line.size() == kIndent;
    if (!first && line.size() + 1 + word.size() > kColumns) {
      out += line + "\n";
      line = std::string(kIndent, ' ');
    } else if (!first) {
      line += ' ';
    }
    line += word;
  }
  out += line + "\n";
}

std::string short_number(double value) {
  return value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

// Omits upper limits that only prevent overflow.
std::string range_help(const Interval& range) {
  constexpr double kNoLimit = 1e6;
  const std::string low = short_number(range.low);
  if (range.high >= kNoLimit && std::isinf(range.low)) {
    return {};
  }
  if (range.high >= kNoLimit) {
    return fmt::format("{} {}", range.above ? "above" : "at least", low);
  }
  return fmt::format("{}{} to {}{}", range.above ? "above " : "", low, range.below ? "below " : "",
                     short_number(range.high));
}

// Returns the permitted values; empty if the type of the default implies them.
std::string permitted(const Field& field) {
  if (const Choice* const choice = std::get_if<Choice>(&field.slot)) {
    return fmt::format(" ({})", fmt::join(choice->names, " | "));
  }
  if (!field.choices.empty()) {
    return fmt::format(" (any of {})", fmt::join(field.choices, ", "));
  }
  const bool number = std::holds_alternative<std::int64_t*>(field.slot) ||
                      std::holds_alternative<double*>(field.slot) ||
                      std::holds_alternative<std::vector<std::int64_t>*>(field.slot) ||
                      std::holds_alternative<std::vector<double>*>(field.slot);
  const std::string range = number ? range_help(field.range) : "";
  return range.empty() ? "" : fmt::format(" ({})", range);
}

std::string explain(const Field& field) {
  std::string text, line = fmt::format("  {} = {}", field.key, detail::spelled(field));
  if (line.size() + 2 > kIndent) {
    text = line + "\n";
    line.clear();
  }
  line.resize(kIndent, ' ');
  wrap(std::move(line), field.about + permitted(field), text);
  return text;
}

// Returns the help of a table and its subtables. A non-empty `wanted` restricts it to the field or table of this name.
std::string explain(const std::string& path, const Table& table, const std::string& wanted) {
  const bool whole = wanted.empty() || wanted == path;
  std::string fields, tables;
  for (const Field& field : table.fields) {
    fields += whole || wanted == path + "." + field.key ? explain(field) : "";
  }
  for (const Table& inner : table.tables) {
    tables += explain(path.empty() ? inner.key : path + "." + inner.key, inner, whole ? "" : wanted);
  }
  return (fields.empty() ? "" : fmt::format("\n[{}]  {}\n", path, table.about) + fields) + tables;
}

}  // namespace

std::string help_text(const std::string& name) {
  Config config;
  Fields fields;
  describe(fields, config);
  const std::string present = detail::current_name(name), keys = explain("", fields.root(), present);
  if (!name.empty()) {
    if (keys.empty()) {
      const std::string close = suggest_key(name.substr(name.rfind('.') + 1));
      user_error("--help-config: {}: unknown key{}", name, close.empty() ? "" : ", did you mean " + close + "?");
    }
    return keys.substr(1);
  }
  return "A config is a TOML file with the keys that differ from these defaults.\n"
         "--set table.key=value changes one key.\n"
         "base = \"other.toml\" (or a recipe's name) before the first table inherits from that config.\n"
         "File names are relative to the config that contains them.\n"
         "A word before a colon is the choice that a key belongs to.\n" +
         keys;
}

}  // namespace headroom::config
