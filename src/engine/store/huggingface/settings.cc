#include "architecture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "headroom/config/part_options.h"
#include "headroom/core/error.h"

namespace headroom::store {
namespace {

constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;
constexpr std::size_t kShownValue = 80;

// Names of activations; exports write the first name of each.
constexpr std::pair<std::string_view, config::Activation> kActivations[] = {
    {"gelu_new", config::Activation::gelu_tanh},  {"gelu_pytorch_tanh", config::Activation::gelu_tanh},
    {"gelu_fast", config::Activation::gelu_tanh}, {"gelu", config::Activation::gelu},
    {"relu", config::Activation::relu},           {"silu", config::Activation::silu},
    {"swish", config::Activation::silu}};

std::string shown(const SortedJson& value) {
  const std::string text = to_json_line(Json(value));
  return text.size() > kShownValue ? text.substr(0, kShownValue) + "..." : text;
}

}  // namespace

Settings::Settings(const SortedJson& values, std::string origin, std::string place)
    : values_(values), origin_(std::move(origin)), place_(std::move(place)) {
  if (!values_.is_object() && !values_.is_null()) {
    user_error("{}: {} must be a JSON object", origin_, place_.empty() ? "it" : place_.substr(0, place_.size() - 1));
  }
}

const SortedJson& Settings::at(const std::string& key) const {
  static const SortedJson kNull;
  return values_.is_object() && values_.contains(key) ? values_.at(key) : kNull;
}

void Settings::refuse(const std::string& key, std::string_view why) const {
  user_error("{}: {}{} {}, got {}", origin_, place_, key, why, has(key) ? shown(at(key)) : "nothing");
}

bool Settings::has(const std::string& key) const {
  return !at(key).is_null();
}

bool Settings::lacks(const std::string& key) const {
  return !values_.is_object() || !values_.contains(key);
}

std::int64_t Settings::size(const std::string& key) const {
  const SortedJson& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < 1 || value.get<std::uint64_t>() > kLargestSize) {
    refuse(key, fmt::format("must be a whole number from 1 to {}", kLargestSize));
  }
  return value.get<std::int64_t>();
}

std::int64_t Settings::size(const std::string& key, std::int64_t otherwise) const {
  return has(key) ? size(key) : otherwise;
}

std::int64_t Settings::size_or_none(const std::string& key, std::int64_t otherwise) const {
  return lacks(key) || has(key) ? size(key, otherwise) : 0;
}

std::int64_t Settings::quotient(const Size& divisor, const Size& whole) const {
  if (whole.second % divisor.second != 0) {
    user_error("{}: {} must divide {} = {}, got {}{}", origin_, place(divisor.first), whole.first, whole.second,
               divisor.second, has(divisor.first) ? "" : ", the default");
  }
  return whole.second / divisor.second;
}

double Settings::number(const std::string& key, double otherwise) const {
  if (has(key) && !(at(key).is_number() && std::isfinite(at(key).get<double>()))) {
    refuse(key, "must be a number");
  }
  return has(key) ? at(key).get<double>() : otherwise;
}

double Settings::epsilon(const std::string& key, double otherwise) const {
  const double value = number(key, otherwise);
  if (!(value > 0.0)) {
    refuse(key, "must be above 0");
  }
  return value;
}

bool Settings::flag(const std::string& key, bool otherwise) const {
  if (has(key) && !at(key).is_boolean()) {
    refuse(key, "must be true or false");
  }
  return has(key) ? at(key).get<bool>() : otherwise;
}

std::string Settings::text(const std::string& key, const std::string& otherwise) const {
  if (has(key) && !at(key).is_string()) {
    refuse(key, "must be a string");
  }
  return has(key) ? at(key).get<std::string>() : otherwise;
}

std::vector<std::string> Settings::texts(const std::string& key) const {
  std::vector<std::string> all;
  if (!has(key)) {
    return all;
  }
  if (!at(key).is_array() || !std::ranges::all_of(at(key), [](const SortedJson& one) { return one.is_string(); })) {
    refuse(key, "must be a list of strings");
  }
  for (const SortedJson& one : at(key)) {
    all.push_back(one.get<std::string>());
  }
  return all;
}

std::vector<std::int64_t> Settings::wholes(const std::string& key) const {
  std::vector<std::int64_t> all;
  if (!has(key)) {
    return all;
  }
  const auto is_whole = [](const SortedJson& one) {
    return one.is_number_unsigned() && one.get<std::uint64_t>() <= kLargestSize;
  };
  if (!at(key).is_array() || !std::ranges::all_of(at(key), is_whole)) {
    refuse(key, "must be a list of whole numbers");
  }
  for (const SortedJson& one : at(key)) {
    all.push_back(one.get<std::int64_t>());
  }
  return all;
}

config::Activation Settings::activation(const std::string& key, const std::string& otherwise) const {
  const std::string name = text(key, otherwise);
  for (const auto& [known, activation] : kActivations) {
    if (known == name) {
      return activation;
    }
  }
  refuse(key, "must be a supported activation: gelu, gelu_new, gelu_pytorch_tanh, relu or silu");
}

Settings Settings::in(const std::string& key) const {
  return {at(key), origin_, place_ + key + "."};
}

void Settings::require(const std::string& key, bool no_effect) const {
  if (has(key) && !no_effect) {
    refuse(key, "has no equivalent");
  }
}

KeyPlace agreed(std::initializer_list<KeyPlace> places) {
  const auto is_set = [](const KeyPlace& place) { return place.settings.has(place.key); };
  const KeyPlace& found = *std::find_if(places.begin(), places.end() - 1, is_set);
  const double value = found.settings.number(found.key, 0.0);
  for (const KeyPlace& place : places) {
    if (is_set(place) && place.settings.number(place.key, 0.0) != value) {
      place.settings.refuse(place.key,
                            fmt::format("contradicts {}, which is {}", found.settings.place(found.key), value));
    }
  }
  return found;
}

namespace {

// Returns the key that names the kind of scaling: the newer or the older one.
const char* type_key(const Settings& place) {
  return place.has("rope_type") ? "rope_type" : "type";
}

// Returns the factor by which YaRN multiplies cosines and sines.
double attention_factor(double factor, double scale) {
  return factor <= 1.0 ? 1.0 : 0.1 * scale * std::log(factor) + 1.0;
}

double above_0(const Settings& s, const char* key, double usual) {
  const double value = s.number(key, usual);
  if (!(value > 0.0)) {
    s.refuse(key, "must be above 0");
  }
  return value;
}

// Returns the context length before scaling, by default the model's.
std::int64_t original_length(const Settings& settings, const Settings& place) {
  constexpr const char *kKey = "original_max_position_embeddings", *kWhole = "max_position_embeddings";
  return settings.has(kKey)                         ? settings.size(kKey)
         : place.has(kKey) || !settings.has(kWhole) ? place.size(kKey)
                                                    : settings.size(kWhole);
}

void read_yarn(const Settings& s, config::RopeScalingOptions& o) {
  o.rope_beta_fast = above_0(s, "beta_fast", 32.0);
  o.rope_beta_slow = above_0(s, "beta_slow", 1.0);
  o.rope_truncate = s.flag("truncate", true);
  const double mscale = s.number("mscale", 0.0), all = s.number("mscale_all_dim", 0.0);
  if (s.has("attention_factor")) {
    o.rope_attention_factor = above_0(s, "attention_factor", 1.0);
  } else if (mscale != 0.0 && all != 0.0) {
    o.rope_attention_factor = attention_factor(o.rope_factor, mscale) / attention_factor(o.rope_factor, all);
  }
}

void read_llama3(const Settings& s, config::RopeScalingOptions& o) {
  o.rope_low_freq_factor = above_0(s, "low_freq_factor", 0.0);
  o.rope_high_freq_factor = above_0(s, "high_freq_factor", 0.0);
  if (o.rope_low_freq_factor >= o.rope_high_freq_factor) {
    s.refuse("low_freq_factor", fmt::format("must be below high_freq_factor = {}", o.rope_high_freq_factor));
  }
}

void read_rope(const Settings& settings, config::AttentionOptions& attention, const RopeDefaults& usual) {
  const Settings rope = settings.in("rope_parameters"), scaling = settings.in("rope_scaling");
  for (const char* kind : {kFullAttention, kSlidingAttention}) {  // gemma3_text has both
    rope.require(kind, false);
  }
  static_cast<config::RopeScalingOptions&>(attention.of<config::PositionOptions>()) =
      read_rope_scaling(settings, scaling_place(rope, scaling));
  attention.position = "rope";
  const KeyPlace base =
      agreed({{rope, "rope_theta"}, {scaling, "rope_theta"}, {settings, "rope_theta"}, {settings, "rotary_emb_base"}});
  attention.of<config::PositionOptions>().rope_base = base.settings.number(base.key, usual.base);
  if (!(attention.of<config::PositionOptions>().rope_base > 1.0)) {
    base.settings.refuse(base.key, "must be above 1");
  }
  const KeyPlace part = agreed({{rope, "partial_rotary_factor"},
                                {scaling, "partial_rotary_factor"},
                                {settings, "partial_rotary_factor"},
                                {settings, "rotary_pct"}});
  attention.of<config::PositionOptions>().rope_fraction = part.settings.number(part.key, usual.fraction);
  if (usual.fraction == 1.0) {
    part.settings.require(part.key, attention.of<config::PositionOptions>().rope_fraction == 1.0);
  }
  if (!(attention.of<config::PositionOptions>().rope_fraction > 0.0 &&
        attention.of<config::PositionOptions>().rope_fraction <= 1.0)) {
    part.settings.refuse(part.key, "must be above 0 and at most 1");
  }
}

}  // namespace

const Settings& scaling_place(const Settings& rope, const Settings& scaling) {
  const std::string type = type_key(rope), other = type_key(scaling);
  if (!scaling.has(other)) {
    scaling.require("factor", scaling.number("factor", 1.0) == rope.number("factor", 1.0));
    return rope;
  }
  if (!rope.has(type)) {
    return scaling;
  }
  if (rope.text(type, "") != scaling.text(other, "")) {
    scaling.refuse(other, fmt::format("contradicts {}, which is \"{}\"", rope.place(type), rope.text(type, "")));
  }
  agreed({{rope, "factor"}, {scaling, "factor"}});
  return scaling;
}

config::RopeScalingOptions read_rope_scaling(const Settings& settings, const Settings& place) {
  using config::RopeScaling;
  config::RopeScalingOptions o;
  const std::string kind = place.text(type_key(place), "default");
  const auto named = config::value_named<RopeScaling>(kind);
  if (kind == "default") {
    place.require("factor", place.number("factor", 1.0) == 1.0);
    return o;
  }
  if (!named || *named == RopeScaling::none) {
    place.refuse(type_key(place), "has no equivalent");
  }
  o.rope_scaling = *named;
  o.rope_factor = place.number("factor", 0.0);
  if (!(o.rope_factor >= 1.0)) {
    place.refuse("factor", "must be at least 1");
  }
  if (o.has_original_length()) {
    o.rope_original_length = original_length(settings, place);
  }
  if (o.rope_scaling == RopeScaling::yarn) {
    read_yarn(place, o);
  } else if (o.rope_scaling == RopeScaling::llama3) {
    read_llama3(place, o);
  }
  return o;
}

Json rope_parameters(const config::PositionOptions& o) {
  if (o.rope_scaling == config::RopeScaling::none) {
    return {{"rope_type", "default"}, {"rope_theta", o.rope_base}};
  }
  Json json = {{"rope_type", config::name_of(o.rope_scaling)}, {"rope_theta", o.rope_base}, {"factor", o.rope_factor}};
  if (o.has_original_length()) {
    json["original_max_position_embeddings"] = o.rope_original_length;
  }
  if (o.rope_scaling == config::RopeScaling::llama3) {
    json["low_freq_factor"] = o.rope_low_freq_factor;
    json["high_freq_factor"] = o.rope_high_freq_factor;
  } else if (o.rope_scaling == config::RopeScaling::yarn) {
    json["beta_fast"] = o.rope_beta_fast;
    json["beta_slow"] = o.rope_beta_slow;
    json["truncate"] = o.rope_truncate;
    if (o.rope_attention_factor > 0.0) {
      json["attention_factor"] = o.rope_attention_factor;
    }
  }
  return json;
}

void describe_rope(Keys& k, config::AttentionOptions& attention, const RopeDefaults& usual) {
  if (k.given() != nullptr) {
    read_rope(*k.given(), attention, usual);
    return;
  }
  const auto& position = attention.of<config::PositionOptions>();
  Json rope = rope_parameters(position);
  if (usual.fraction != 1.0) {
    rope["partial_rotary_factor"] = position.rope_fraction;
  }
  k.only_written({{"rope_theta", position.rope_base}, {"rope_parameters", rope}});
}

void Keys::size(const char* key, std::int64_t& option, std::int64_t usual) {
  given_ != nullptr ? void(option = given_->size(key, usual)) : void(written_[key] = option);
}

void Keys::number(const char* key, double& option, double usual) {
  given_ != nullptr ? void(option = given_->number(key, usual)) : void(written_[key] = option);
}

void Keys::epsilon(const char* key, double& option, double usual) {
  given_ != nullptr ? void(option = given_->epsilon(key, usual)) : void(written_[key] = option);
}

void Keys::flag(const char* key, bool& option, bool usual) {
  given_ != nullptr ? void(option = given_->flag(key, usual)) : void(written_[key] = option);
}

void Keys::activation(const char* key, config::Activation& option, const char* usual) {
  if (given_ != nullptr) {
    option = given_->activation(key, usual);
    return;
  }
  written_[key] = std::ranges::find(kActivations, option, [](const auto& one) { return one.second; })->first;
}

void Keys::only(const char* key, const Json& value) {
  if (given_ == nullptr) {
    written_[key] = value;
    return;
  }
  given_->require(key, value.is_boolean()  ? given_->flag(key, value.get<bool>()) == value.get<bool>()
                       : value.is_number() ? given_->number(key, 0.0) == value.get<double>()
                       : value.is_string() ? given_->text(key, "") == value.get<std::string>()
                                           : false);
}

void Keys::model_type(const std::string& kind, const char* name) {
  only_written({{"model_type", kind}, {"architectures", {name}}});
}

void Keys::only_written(const Json& keys) {
  if (given_ == nullptr) {
    written_.update(keys);
  }
}

}  // namespace headroom::store
