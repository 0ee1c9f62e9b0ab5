// What the checks of one room share: sentences that name the config and the key.
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

// What a message says of a key's place: where it was given its value, or the config that leaves it at its default.
struct Origin {
  std::string_view config;
  const GivenKeys* given = nullptr;  // nothing is known of its keys

  std::string_view of(const std::string& key) const {
    if (given != nullptr && given->contains(key)) {
      return given->at(key);
    }
    return config;
  }
};

class Checker {
 public:
  Checker(Origin origin, std::string_view table) : origin_(origin), table_(table) {}

  template <class... Args>
  void require(bool holds, std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    if (!holds) {
      const std::string dotted = fmt::format("{}.{}", table_, key);
      user_error("{}: {}: {}", origin_.of(dotted), dotted, fmt::format(format, std::forward<Args>(args)...));
    }
  }
  void require_distinct(std::string_view key, std::vector<std::string> values) const {
    std::sort(values.begin(), values.end());
    const auto twice = std::adjacent_find(values.begin(), values.end());
    require(twice == values.end(), key, "names \"{}\" twice", twice == values.end() ? "" : *twice);
  }

 private:
  Origin origin_;
  std::string_view table_;
};

// `key = "value"`, to name what a setting does not go with.
template <class Enum>
std::string setting(std::string_view key, Enum value) {
  return fmt::format("{} = \"{}\"", key, name_of(value));
}

void check_attention(const ModelOptions& model, Origin origin);

}  // namespace headroom::config::detail
