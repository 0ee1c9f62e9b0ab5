// A config.json, read with suspicion: every complaint names the file and the key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "headroom/config/model_options.h"
#include "headroom/core/json.h"

namespace headroom::store {

class Settings {
 public:
  // `values` must outlive it; `place` is what the keys are inside of: "" or "rope_parameters.".
  Settings(const SortedJson& values, std::string origin, std::string place = "");

  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;
  // Whether there is a value other than null.
  bool has(const std::string& key) const;
  // Throw UserError where the value is of another type or range, or missing where there is no `otherwise`.
  std::int64_t size(const std::string& key) const;  // 1 to 2^24
  std::int64_t size(const std::string& key, std::int64_t otherwise) const;
  // The width of each of the heads that share a model's: throws UserError where it cannot be shared evenly.
  using Size = std::pair<const char*, std::int64_t>;  // its key and value
  std::int64_t head_share(const Size& n_heads, const Size& d_model) const;
  double number(const std::string& key, double otherwise) const;   // finite
  double epsilon(const std::string& key, double otherwise) const;  // above 0
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  config::Activation activation(const std::string& key, const std::string& otherwise) const;
  // The object under a key; null's settings where there is none.
  Settings in(const std::string& key) const;
  const std::string& origin() const { return origin_; }

  // Throws UserError naming the key, unless it is absent, null, or what does nothing.
  void require(const std::string& key, bool nothing) const;

 private:
  const SortedJson& at(const std::string& key) const;
  const SortedJson& values_;
  std::string origin_, place_;
};

// Rotary positions: `rope_theta`, `partial_rotary_factor` and their older names, at the top or in rope_parameters.
// `fraction` of the channels turns where nothing is said. Refuses every kind of scaling.
void read_rope(const Settings& settings, config::AttentionOptions& attention, double fraction);

// As config.json spells it.
std::string activation_name(config::Activation activation);

}  // namespace headroom::store
