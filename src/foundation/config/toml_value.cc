#include "parse.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <type_traits>

#include "foundation/core/text/utf8.h"
#include "headroom/core/error.h"

namespace headroom::config::detail {
namespace {

// Thrown if a value does not fit the field.
struct Refused {};

void require(bool fits) {
  if (!fits) {
    throw Refused();
  }
}

bool within(const Interval& range, double value) {
  const bool low = range.above ? value > range.low : value >= range.low;
  const bool high = range.below ? value < range.high : value <= range.high;
  return std::isfinite(value) && low && high;
}

std::string range_text(const Interval& range) {
  const auto number = [](double value) {
    return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                                : fmt::format("{}", value);
  };
  if (std::isinf(range.low)) {
    return std::isinf(range.high) ? "" : fmt::format("at most {}", number(range.high));
  }
  if (std::isinf(range.high)) {
    return fmt::format("{} {}", range.above ? "above" : "of at least", number(range.low));
  }
  if (range.above) {
    return fmt::format("above {} and {} {}", number(range.low), range.below ? "below" : "at most", number(range.high));
  }
  return range.below ? fmt::format("of at least {} and below {}", number(range.low), number(range.high))
                     : fmt::format("from {} to {}", number(range.low), number(range.high));
}

std::string with_range(const std::string& noun, const Interval& range, const char* separator = " ") {
  const std::string text = range_text(range);
  return text.empty() ? noun : noun + separator + text;
}

// Compares as integers, because rounding to double could move the value into the range.
std::int64_t to_integer(const toml::node& value, const Interval& range) {
  constexpr double kBeyond = 0x1p63;
  require(value.is_integer());
  const std::int64_t number = value.as_integer()->get();
  const bool above_high = range.high < kBeyond && number > static_cast<std::int64_t>(range.high);
  require(!above_high && within(range, static_cast<double>(number)));
  return number;
}

double to_double(const toml::node& value, const Interval& range) {
  require(value.is_integer() || value.is_floating_point());
  const double number =
      value.is_integer() ? static_cast<double>(value.as_integer()->get()) : value.as_floating_point()->get();
  require(within(range, number));
  return number;
}

const std::string& to_text(const toml::node& value) {
  require(value.is_string());
  return value.as_string()->get();
}

std::string on_one_line(const toml::node& value) {
  if (value.is_table()) {
    return "a table";
  }
  if (const auto* const text = value.as_string()) {
    return in_quotes(text->get());
  }
  if (const toml::array* const elements = value.as_array()) {
    std::string list;
    for (const toml::node& element : *elements) {
      list += (list.empty() ? "" : ", ") + on_one_line(element);
      if (list.size() > 200) {  // shown() shortens it anyway
        break;
      }
    }
    return "[" + list + "]";
  }
  if (const auto* const number = value.as_floating_point()) {
    return spelled(number->get());
  }
  std::ostringstream stream;
  value.visit([&stream](const auto& node) {
    if constexpr (toml::is_value<decltype(node)>) {
      stream << node;
    }
  });
  return stream.str();
}

// The keys and values of a table on one line. --set passes tables as strings.
std::string table_text(const toml::node& value) {
  if (value.is_string()) {
    const std::string& text = to_text(value);  // flatten() gives the keys without braces
    toml::table parsed;
    try {
      parsed = parse_toml("table = " + (text.starts_with('{') ? text : "{" + text + "}"), "");
    } catch (const UserError&) {
      throw Refused();
    }
    return parsed.size() == 1 ? table_text(*parsed.get("table")) : throw Refused();
  }
  require(value.is_table());
  std::string text;
  for (const auto& [key, inner] : *value.as_table()) {
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", in_quotes(key.str()),
                        inner.is_table() ? "{" + table_text(inner) + "}" : on_one_line(inner));
  }
  return text;
}

// Sets any kind of slot. On a mismatch, throws Refused and changes nothing.
struct Assigner {
  const Field& field;
  const toml::node& value;

  void operator()(bool* slot) const {
    require(value.is_boolean());
    *slot = value.as_boolean()->get();
  }
  void operator()(std::int64_t* slot) const {
    const bool automatic = field.automatic && value.is_string() && value.as_string()->get() == kAutomaticWord;
    *slot = automatic ? kAutomatic : to_integer(value, field.range);
  }
  void operator()(double* slot) const { *slot = to_double(value, field.range); }
  void operator()(std::string* slot) const { *slot = field.table ? table_text(value) : to_text(value); }
  void operator()(std::vector<std::int64_t>* slot) const { *slot = numbers<std::int64_t>(to_integer); }
  void operator()(std::vector<double>* slot) const { *slot = numbers<double>(to_double); }
  void operator()(std::vector<std::string>* slot) const {
    std::vector<std::string> texts;
    for (const toml::node& element : elements()) {
      texts.push_back(to_text(element));
      require(field.choices.empty() || std::ranges::find(field.choices, texts.back()) != field.choices.end());
    }
    *slot = std::move(texts);
  }
  void operator()(std::vector<LayerOptions>* /*slot*/) const { throw Refused(); }  // assign_layers() sets it
  void operator()(const Choice& choice) const {
    const std::string& text = to_text(value);
    require(std::ranges::find(choice.names, text) != choice.names.end());
    choice.set(text);
  }

  template <class Number>
  std::vector<Number> numbers(Number (*convert)(const toml::node&, const Interval&)) const {
    std::vector<Number> list;
    for (const toml::node& element : elements()) {
      list.push_back(convert(element, field.range));
    }
    return list;
  }
  const toml::array& elements() const {
    require(value.is_array());
    return *value.as_array();
  }
};

// Describes the permitted values: "an integer of at least 1", "one of "dense", "experts"".
std::string expected(const Field& field) {
  return std::visit(
      [&field](const auto& slot) -> std::string {
        using Slot = std::decay_t<decltype(slot)>;
        if constexpr (std::is_same_v<Slot, bool*>) {
          return "true or false";
        } else if constexpr (std::is_same_v<Slot, std::int64_t*>) {
          return with_range("an integer", field.range) +
                 (field.automatic ? fmt::format(", or \"{}\"", kAutomaticWord) : "");
        } else if constexpr (std::is_same_v<Slot, double*>) {
          return with_range("a number", field.range);
        } else if constexpr (std::is_same_v<Slot, std::string*>) {
          return field.table ? "a table" : "a string";
        } else if constexpr (std::is_same_v<Slot, std::vector<std::int64_t>*>) {
          return with_range("a list of integers", field.range, ", each ");
        } else if constexpr (std::is_same_v<Slot, std::vector<double>*>) {
          return with_range("a list of numbers", field.range, ", each ");
        } else if constexpr (std::is_same_v<Slot, std::vector<std::string>*>) {
          return field.choices.empty()
                     ? std::string("a list of strings")
                     : fmt::format("a list of strings out of \"{}\"", fmt::join(field.choices, "\", \""));
        } else if constexpr (std::is_same_v<Slot, std::vector<LayerOptions>*>) {
          return "a list of tables";
        } else {
          return slot.names.size() == 1 ? fmt::format("\"{}\"", slot.names[0])
                                        : fmt::format("one of \"{}\"", fmt::join(slot.names, "\", \""));
        }
      },
      field.slot);
}

// Returns "; a list is written [0.5]" if a single value was given for a list.
std::string list_hint(const Field& field, const toml::node& value) {
  const bool texts = std::holds_alternative<std::vector<std::string>*>(field.slot);
  const bool list = texts || std::holds_alternative<std::vector<std::int64_t>*>(field.slot) ||
                    std::holds_alternative<std::vector<double>*>(field.slot);
  if (!list || value.is_array() || value.is_table()) {
    return "";
  }
  std::string element = value.is_string() == texts ? shown(value) : texts ? "\"a\", \"b\"" : "1, 2";
  for (std::size_t at = element.find(','); texts && value.is_string() && at != std::string::npos;
       at = element.find(',', at + 4)) {
    element.replace(at, 1, "\", \"");  // "a,b" was meant as two
  }
  return fmt::format("; a list is written [{}]", element);
}

template <class Element, class Spell>
std::string list_text(const std::vector<Element>& elements, Spell spell) {
  std::string text;
  for (const Element& element : elements) {
    text += (text.empty() ? "" : ", ") + spell(element);
  }
  return "[" + text + "]";
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string line = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        line += "\\\"";
        break;
      case '\\':
        line += "\\\\";
        break;
      case '\n':
        line += "\\n";
        break;
      case '\t':
        line += "\\t";
        break;
      case '\r':
        line += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
          line += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          line += c;
        }
    }
  }
  return line + "\"";
}

std::string spelled(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_not_of("-0123456789") == std::string::npos) {
    text += ".0";
  }
  return text;
}

std::string spelled(const Field& field) {
  return std::visit(
      [&field](const auto& slot) -> std::string {
        using Slot = std::decay_t<decltype(slot)>;
        if constexpr (std::is_same_v<Slot, Choice>) {
          return in_quotes(slot.get());
        } else if constexpr (std::is_same_v<Slot, std::string*>) {
          return field.table ? "{" + *slot + "}" : in_quotes(*slot);
        } else if constexpr (std::is_same_v<Slot, double*> || std::is_same_v<Slot, std::vector<LayerOptions>*>) {
          return spelled(*slot);
        } else if constexpr (std::is_same_v<Slot, std::vector<std::int64_t>*>) {
          return list_text(*slot, [](std::int64_t number) { return fmt::format("{}", number); });
        } else if constexpr (std::is_same_v<Slot, std::vector<double>*>) {
          return list_text(*slot, [](double number) { return spelled(number); });
        } else if constexpr (std::is_same_v<Slot, std::vector<std::string>*>) {
          return list_text(*slot, [](const std::string& text) { return in_quotes(text); });
        } else if constexpr (std::is_same_v<Slot, std::int64_t*>) {
          return field.automatic && *slot == kAutomatic ? in_quotes(kAutomaticWord) : fmt::format("{}", *slot);
        } else {
          return fmt::format("{}", *slot);
        }
      },
      field.slot);
}

std::string shown(const toml::node& value) {
  std::string text = on_one_line(value);
  if (text.size() <= 120) {
    return text;
  }
  return text.substr(0, character_boundary(text, 117)) + "...";
}

void assign(const Field& field, const toml::node& value, const std::string& prefix, const std::string& dotted) {
  if (auto* const* const layers = std::get_if<std::vector<LayerOptions>*>(&field.slot)) {
    assign_layers(**layers, value, prefix, dotted);
    return;
  }
  try {
    std::visit(Assigner{field, value}, field.slot);
  } catch (const Refused&) {
    user_error("{}{}: must be {}, got {}{}", prefix, dotted, expected(field), shown(value), list_hint(field, value));
  }
}

}  // namespace headroom::config::detail
