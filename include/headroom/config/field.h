// How an options struct describes itself: once, as a list of fields. From that one description come the TOML
// reader, `--set`, the help text, the file written back, and the checkpoint's copy.
//
// A part's options are a plain struct and a function `void describe(Fields&, PartOptions&)`:
//
//   void describe(Fields& fields, MlpOptions& o) {
//     fields.add("d_hidden", o.d_hidden, at_least(1), "width of the hidden layer (experts: of one expert)");
//     fields.add("activation", o.activation, "non-linearity between the two products");
//   }
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headroom::config {

// Interval that a number must lie in; `above` excludes the lower end, `below` the upper one.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above = false;
  bool below = false;
};
constexpr Range at_least(double low) {
  return {.low = low};
}
constexpr Range above(double low) {
  return {.low = low, .above = true};
}
constexpr Range between(double low, double high) {
  return {.low = low, .high = high};
}
constexpr Range at_least_below(double low, double high) {
  return {.low = low, .high = high, .below = true};
}
constexpr Range above_up_to(double low, double high) {
  return {.low = low, .high = high, .above = true};
}

// The spelling of an enum's values in TOML: specialise as
//   template <> struct Names<Gate> { static constexpr std::pair<Gate, std::string_view> kNames[] = {...}; };
template <class Enum>
struct Names;

template <class Enum>
std::string_view name_of(Enum value) {
  for (const auto& [candidate, name] : Names<Enum>::kNames) {
    if (candidate == value) {
      return name;
    }
  }
  return "?";
}

// The value of that name; none where no value has it.
template <class Enum>
std::optional<Enum> value_named(std::string_view text) {
  for (const auto& [candidate, name] : Names<Enum>::kNames) {
    if (name == text) {
      return candidate;
    }
  }
  return std::nullopt;
}

// An enum seen as text.
struct Choice {
  std::vector<std::string> names;
  std::function<std::string()> get;
  std::function<void(const std::string&)> set;  // only called with one of `names`
};

// In place of an integer that the run decides on itself.
inline constexpr std::int64_t kAutomatic = -1;

struct Field {
  std::string key;
  std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*, std::vector<double>*,
               std::vector<std::string>*, Choice>
      slot;
  Range range;                       // numbers, and the elements of number lists
  std::vector<std::string> choices;  // elements that a list of strings may hold; empty: any
  std::string about;                 // one line of help
  bool path = false;                 // strings: names of files, relative to the file that holds them
  bool automatic = false;            // integers: kAutomatic is written "auto"
};

class Fields {
 public:
  // Opens a table: its fields are added by `describe(*this, options)`, nested under `key`.
  template <class Options>
  void table(std::string key, Options& options, std::string about) {
    Fields inner;
    describe(inner, options);
    tables_.push_back({std::move(key), std::move(about), std::move(inner.fields_), {}});
    tables_.back().tables = std::move(inner.tables_);
  }

  void add(std::string key, bool& value, std::string about) { push(std::move(key), &value, {}, {}, std::move(about)); }
  void add(std::string key, std::int64_t& value, Range range, std::string about) {
    push(std::move(key), &value, range, {}, std::move(about));
  }
  void add(std::string key, double& value, Range range, std::string about) {
    push(std::move(key), &value, range, {}, std::move(about));
  }
  void add(std::string key, std::string& value, std::string about) {
    push(std::move(key), &value, {}, {}, std::move(about));
  }
  void add(std::string key, std::vector<std::int64_t>& value, Range range, std::string about) {
    push(std::move(key), &value, range, {}, std::move(about));
  }
  void add(std::string key, std::vector<double>& value, Range range, std::string about) {
    push(std::move(key), &value, range, {}, std::move(about));
  }
  void add(std::string key, std::vector<std::string>& value, std::vector<std::string> choices, std::string about) {
    push(std::move(key), &value, {}, std::move(choices), std::move(about));
  }
  void add_path(std::string key, std::string& value, std::string about) {
    add(std::move(key), value, std::move(about));
    fields_.back().path = true;
  }
  void add_paths(std::string key, std::vector<std::string>& value, std::string about) {
    add(std::move(key), value, {}, std::move(about));
    fields_.back().path = true;
  }
  // An integer of this range, or "auto".
  void add_or_auto(std::string key, std::int64_t& value, Range range, std::string about) {
    add(std::move(key), value, range, std::move(about));
    fields_.back().automatic = true;
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void add(std::string key, Enum& value, std::string about) {
    Choice choice;
    for (const auto& [candidate, name] : Names<Enum>::kNames) {
      choice.names.emplace_back(name);
    }
    choice.get = [&value] { return std::string(name_of(value)); };
    choice.set = [&value](const std::string& text) { value = value_named<Enum>(text).value_or(value); };
    add(std::move(key), std::move(choice), std::move(about));
  }
  void add(std::string key, Choice choice, std::string about) {
    push(std::move(key), std::move(choice), {}, {}, std::move(about));
  }

  // Whether the table has this key by now.
  bool has(std::string_view key) const {
    return std::any_of(fields_.begin(), fields_.end(), [key](const Field& field) { return field.key == key; });
  }

  struct Table {
    std::string key, about;
    std::vector<Field> fields;
    std::vector<Table> tables;
  };
  const std::vector<Field>& fields() const { return fields_; }
  const std::vector<Table>& tables() const { return tables_; }

 private:
  template <class Slot>
  void push(std::string key, Slot slot, Range range, std::vector<std::string> choices, std::string about) {
    fields_.push_back({std::move(key), std::move(slot), range, std::move(choices), std::move(about)});
  }
  std::vector<Field> fields_;
  std::vector<Table> tables_;
};

}  // namespace headroom::config
