// Checks of a config, with errors that name the key and the place where it was set.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"

namespace headroom::config::detail {

// The place where a key was set or, if it is unknown, the name of the config.
struct Origin {
  std::string_view config;
  const GivenKeys* given = nullptr;

  std::string_view of(const std::string& key) const {
    if (given == nullptr) {
      return config;
    }
    auto at = given->find(key);
    if (at == given->end() && key.starts_with("model.layers.")) {
      at = given->find("model.layers");
    }
    return at == given->end() ? config : std::string_view(at->second);
  }
};

class Checker {
 public:
  Checker(Origin origin, std::string_view table) : origin_(origin), table_(table) {}

  // Throws UserError "<place>: <table>.<key>: <message>" unless `holds`.
  template <class... Args>
  void require(bool holds, std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) {
      const std::string dotted = fmt::format("{}.{}", table_, key);
      user_error("{}: {}: {}", origin_.of(dotted), dotted, fmt::format(format, std::forward<Args>(args)...));
    }
  }
  void require_distinct(std::string_view key, std::vector<std::string> values) const {
    std::ranges::sort(values);
    const auto twice = std::adjacent_find(values.begin(), values.end());
    require(twice == values.end(), key, "names \"{}\" twice", twice == values.end() ? "" : *twice);
  }

 private:
  Origin origin_;
  std::string_view table_;
};

// Formats key = "value" for messages.
template <class Enum>
std::string setting(std::string_view key, Enum value) {
  return fmt::format("{} = \"{}\"", key, name_of(value));
}

// Refuses the keys outside of `model` that have no effect (Field::refuse_unused); without `with_model`, only those on
// whose effect `model` does not decide.
void check_unused(const Config& config, Origin origin, bool with_model);
// Checks model.attention, model.mlp and model.layers, and refuses the keys of `model` that have no effect.
void check_layers(const ModelOptions& model, Origin origin);

}  // namespace headroom::config::detail
