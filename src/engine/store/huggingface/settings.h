// Reads a config.json; every error names the file and the key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "headroom/config/attention/position_options.h"
#include "headroom/config/model_options.h"
#include "headroom/core/json.h"

namespace headroom::store {

class Settings {
 public:
  // `values` must outlive the object. `place` is the prefix of keys in messages: "" or "rope_parameters.".
  Settings(const SortedJson& values, std::string origin, std::string place = "");

  // Throws UserError "<origin>: <place><key> <why>, got <value>".
  [[noreturn]] void refuse(const std::string& key, std::string_view why) const;
  const std::string& origin() const { return origin_; }
  std::string place(const std::string& key) const { return place_ + key; }  // the key as named in messages
  // Whether the key has a value other than null.
  bool has(const std::string& key) const;
  // Whether the key is missing. Some architectures have different defaults for a missing key and for null.
  bool lacks(const std::string& key) const;
  // The functions below throw UserError if the value has a wrong type or range, or is missing without a default
  // `otherwise`.
  std::int64_t size(const std::string& key) const;  // 1 to 2^24
  std::int64_t size(const std::string& key, std::int64_t otherwise) const;
  std::int64_t size_or_none(const std::string& key, std::int64_t otherwise) const;  // 0 if the key is null
  // Returns d_model / n_heads. Throws UserError if n_heads does not divide d_model.
  using Size = std::pair<const char*, std::int64_t>;  // key and value
  std::int64_t head_share(const Size& n_heads, const Size& d_model) const;
  double number(const std::string& key, double otherwise) const;   // finite
  double epsilon(const std::string& key, double otherwise) const;  // above 0
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<std::string> texts(const std::string& key) const;    // a list of strings; empty if it is missing
  std::vector<std::int64_t> wholes(const std::string& key) const;  // of whole numbers from 0; empty if it is missing
  config::Activation activation(const std::string& key, const std::string& otherwise) const;
  // Returns the object stored under a key; empty settings if it is missing.
  Settings in(const std::string& key) const;

  // Throws UserError "has no equivalent" unless the key is missing, null, or has no effect.
  void require(const std::string& key, bool no_effect) const;

 private:
  const SortedJson& at(const std::string& key) const;
  const SortedJson& values_;
  std::string origin_, place_;
};

// Reads rotary positions: `rope_theta`, `partial_rotary_factor` and their older names, at the top level, in
// rope_parameters or in rope_scaling, and their scaling. Throws UserError if two places contradict each other, or if
// the scaling has no equivalent.
struct RopeDefaults {
  double fraction = 1.0;  // of rotated channels; 1: the architecture always rotates all
  double base = 10000.0;
};
void read_rope(const Settings& settings, config::AttentionOptions& attention, const RopeDefaults& usual);

// Reads the scaling that `place` describes, one of the objects rope_parameters and rope_scaling of `settings`.
config::RopeScalingOptions read_rope_scaling(const Settings& settings, const Settings& place);

// Returns rope_parameters for export, without partial_rotary_factor.
Json rope_parameters(const config::PositionOptions& position);

// Returns the activation's name in config.json.
std::string activation_name(config::Activation activation);

}  // namespace headroom::store
