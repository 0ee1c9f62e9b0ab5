// Describes an options struct as a list of fields. This one description serves TOML parsing, `--set`, the help text,
// written configs and the copy in checkpoints.
//
// An options struct is a plain struct with a function `void describe(Fields&, Options&)`:
//
//   void describe(Fields& fields, MlpOptions& o) {
//     fields.add("d_hidden", o.d_hidden, at_least(1), "width of the hidden layer (experts: of one expert)");
//     fields.add("activation", o.activation, "non-linearity of the hidden layer");
//   }
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "headroom/core/error.h"

namespace headroom::config {

// The permitted values of a number. `above` excludes the lower bound, `below` the upper bound.
struct Interval {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above = false;
  bool below = false;
};
constexpr Interval at_least(double low) {
  return {.low = low};
}
constexpr Interval above(double low) {
  return {.low = low, .above = true};
}
constexpr Interval between(double low, double high) {
  return {.low = low, .high = high};
}
constexpr Interval at_least_below(double low, double high) {
  return {.low = low, .high = high, .below = true};
}
constexpr Interval above_up_to(double low, double high) {
  return {.low = low, .high = high, .above = true};
}

// The TOML names of an enum's values, in the order of its enumerators, which must count from 0. Specialise it next to
// the enum. Unused elements are empty.
using EnumNames = std::array<std::string_view, 8>;
template <class Enum>
inline constexpr EnumNames kEnumNames = {};

template <class Enum>
std::string_view name_of(Enum value) {
  static_assert(!kEnumNames<Enum>.front().empty());
  return kEnumNames<Enum>.at(static_cast<std::size_t>(value));
}

// Returns all values of an enum with their names.
template <class Enum>
std::vector<std::pair<Enum, std::string_view>> values_of() {
  std::vector<std::pair<Enum, std::string_view>> values;
  for (const std::string_view name : kEnumNames<Enum>) {
    if (!name.empty()) {
      values.emplace_back(static_cast<Enum>(values.size()), name);
    }
  }
  return values;
}

// Returns the value with this name, or nullopt.
template <class Enum>
std::optional<Enum> value_named(std::string_view text) {
  for (const auto& [value, name] : values_of<Enum>()) {
    if (name == text) {
      return value;
    }
  }
  return std::nullopt;
}

// Accesses an enum by the names of its values.
struct Choice {
  std::vector<std::string> names;
  std::function<std::string()> get;
  std::function<void(const std::string&)> set;  // only called with one of `names`
};

// The value of an integer that the config sets to "auto".
inline constexpr std::int64_t kAutomatic = -1;

struct LayerOptions;  // model_options.h

struct Field {
  std::string key;
  std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*, std::vector<double>*,
               std::vector<std::string>*, Choice, std::vector<LayerOptions>*>
      slot;
  Interval range;                    // for a number, or for each element of a list of numbers
  std::vector<std::string> choices;  // permitted elements of a list of strings; empty: any string
  std::string about;                 // one line of help text
  bool path = false;                 // strings: file names, relative to the folder of the file that sets them
  bool table = false;                // strings: a TOML table, stored as text
  bool automatic = false;            // integers: "auto" is permitted (kAutomatic)
  bool refuse_unused = false;        // if nothing reads the field, a non-default value is an error, not a warning
  std::string choice;                // key whose value decides whether the field has an effect; "": none
  std::vector<std::string> readers;  // values of `choice` with which the field has an effect
};

struct Table {
  std::string key, about;
  std::vector<Field> fields;
  std::vector<Table> tables;

  const Field* find(std::string_view name) const {
    const auto at = std::ranges::find_if(fields, [name](const Field& field) { return field.key == name; });
    return at == fields.end() ? nullptr : &*at;
  }
  const Table* find_table(std::string_view name) const {
    const auto at = std::ranges::find_if(tables, [name](const Table& table) { return table.key == name; });
    return at == tables.end() ? nullptr : &*at;
  }

  // Calls visit(dotted key, field) for every field: first the fields of this table, then those of its subtables.
  template <class Visit>
  void for_each(const Visit& visit, const std::string& prefix = "") const {
    for (const Field& field : fields) {
      visit(prefix + field.key, field);
    }
    for (const Table& table : tables) {
      table.for_each(visit, prefix + table.key + ".");
    }
  }
};

// Collects the description of an options struct. Holds pointers into the struct, which must outlive it.
class Fields {
 public:
  // Adds a table with the fields that `describe(Fields&, Options&)` adds.
  template <class Options>
  void table(std::string key, Options& options, std::string about) {
    Fields inner;
    describe(inner, options);
    inner.root_.key = std::move(key);
    inner.root_.about = std::move(about);
    root_.tables.push_back(std::move(inner.root_));
  }

  // Calls add(*this). The fields that it adds have an effect only if `choice` has one of the values `readers`. `choice`
  // is another key of this table, or the dotted name of a key of another table ("model.kind"). Several calls may add
  // the same field.
  template <class Add>
  void only_with(const std::string& choice, const std::vector<std::string_view>& readers, const Add& add) {
    choice_ = choice;
    readers_.assign(readers.begin(), readers.end());
    add(*this);
    choice_.clear();
  }

  // Makes values other than the default of the fields `keys`, which have been added, an error unless `choice`, as in
  // only_with(), has one of the values `readers`.
  void refuse_without(const std::string& choice, const std::vector<std::string_view>& readers,
                      const std::vector<std::string_view>& keys) {
    for (Field& field : root_.fields) {
      if (std::ranges::find(keys, field.key) != keys.end()) {
        field.choice = choice;
        field.readers.assign(readers.begin(), readers.end());
        field.refuse_unused = true;
      }
    }
  }

  // These functions add a field and return it, so that flags can be set: add(...).path = true. The reference is valid
  // until the next call.
  Field& add(std::string key, bool& value, std::string about) { return push(std::move(key), &value, std::move(about)); }
  Field& add(std::string key, std::int64_t& value, Interval range, std::string about) {
    return push(std::move(key), &value, std::move(about), range);
  }
  Field& add(std::string key, double& value, Interval range, std::string about) {
    return push(std::move(key), &value, std::move(about), range);
  }
  Field& add(std::string key, std::string& value, std::string about) {
    return push(std::move(key), &value, std::move(about));
  }
  Field& add(std::string key, std::vector<std::int64_t>& value, Interval range, std::string about) {
    return push(std::move(key), &value, std::move(about), range);
  }
  Field& add(std::string key, std::vector<double>& value, Interval range, std::string about) {
    return push(std::move(key), &value, std::move(about), range);
  }
  Field& add(std::string key, std::vector<std::string>& value, std::vector<std::string> choices, std::string about) {
    return push(std::move(key), &value, std::move(about), {}, std::move(choices));
  }
  template <class Enum>
  requires std::is_enum_v<Enum> Field& add(std::string key, Enum& value, std::string about) {
    Choice choice;
    for (const auto& [candidate, name] : values_of<Enum>()) {
      choice.names.emplace_back(name);
    }
    choice.get = [&value] { return std::string(name_of(value)); };
    choice.set = [&value](const std::string& text) { value = value_named<Enum>(text).value_or(value); };
    return add(std::move(key), std::move(choice), std::move(about));
  }
  Field& add(std::string key, std::vector<LayerOptions>& value, std::string about) {
    return push(std::move(key), &value, std::move(about));
  }
  Field& add(std::string key, Choice choice, std::string about) {
    return push(std::move(key), std::move(choice), std::move(about));
  }

  const Table& root() const { return root_; }
  const std::vector<Field>& fields() const { return root_.fields; }

 private:
  template <class Slot>
  Field& push(std::string key, Slot slot, std::string about, Interval range = {},
              std::vector<std::string> choices = {}) {
    Field added;
    added.key = std::move(key);
    added.slot = std::move(slot);
    added.range = range;
    added.choices = std::move(choices);
    added.about = std::move(about);
    added.choice = choice_;
    return push(std::move(added));
  }
  Field& push(Field added) {
    const auto known = std::ranges::find_if(root_.fields, [&](const Field& field) { return field.key == added.key; });
    const bool shared = known != root_.fields.end();
    if (shared && (choice_.empty() || known->choice != choice_ || known->about != added.about)) {
      fail("config: two options have the name {}", added.key);
    }
    Field& field = shared ? *known : root_.fields.emplace_back(std::move(added));
    if (!choice_.empty()) {
      field.readers.insert(field.readers.end(), readers_.begin(), readers_.end());
    }
    return field;
  }

  Table root_;
  std::string choice_;  // of the fields that are being added
  std::vector<std::string> readers_;
};

}  // namespace headroom::config
