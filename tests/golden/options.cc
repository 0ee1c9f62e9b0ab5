// Converts the options of cases to Headroom's options.
#include <cmath>
#include <set>

#include "case.h"
#include "engine/nn/attention/gaussian_mixture.h"
#include "headroom/config/part_options.h"

namespace headroom::golden {
namespace {

// These names differ between cases and Headroom.
std::string own_name(const std::string& name) {
  return name == "gelu_erf" ? "gelu" : name == "mlp" ? "dense" : name;
}

[[noreturn]] void refuse_value(std::string_view key, const Json& value) {
  user_error("options.{}: unknown value {}", key, value.dump());
}

// Returns `fallback` if the key is absent or null.
double number(const Json& options, const char* key, double fallback) {
  if (is_null(options, key)) {
    return fallback;
  }
  if (!options.at(key).is_number()) {
    user_error("options.{}: must be a number, got {}", key, options.at(key).dump());
  }
  return options.at(key).get<double>();
}

std::int64_t window_of(const Json& options) {
  return is_null(options, "window") ? 0 : options.at("window").get<std::int64_t>();
}

// Returns `fallback` if the key is absent or null.
template <class Enum>
Enum value_of(const Json& options, const char* key, Enum fallback) {
  if (is_null(options, key)) {
    return fallback;
  }
  if (options.at(key).is_string()) {
    if (const auto value = config::value_named<Enum>(own_name(options.at(key).get<std::string>()))) {
      return *value;
    }
  }
  refuse_value(key, options.at(key));
}

// Throws UserError unless the option equals a constant that is built into the layers.
void require_built_in(const Json& options, const char* key, double built_in) {
  if (const double given = number(options, key, built_in); given != built_in) {
    user_error("options.{}: must be {}, which is built into the layer, got {}", key, built_in, given);
  }
}

void set_qk_norm(const Json& options, config::AttentionOptions& o) {
  o.qk_norm = !is_null(options, "qk_norm");
  if (o.qk_norm) {
    const Json& norm = options.at("qk_norm");
    require_among(norm, "kind", {"rms"});
    o.qk_norm_epsilon = norm.at("epsilon").get<double>();
  }
}

void set_position(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& position = o.of<config::PositionOptions>();
  o.position = options.contains("position") ? options.at("position").get<std::string>() : "none";
  if (o.position == "rope") {
    const Json& rope = options.at("rope");
    const double channels = rope.at("channels").get<double>();
    position.rope_fraction = channels / static_cast<double>(c.dim("d_head"));
    position.rope_base = rope.at("base").get<double>();
  } else if (o.position == "relative") {
    position.rope_base = options.at("relative").at("base").get<double>();
  }
}

std::vector<std::string> named(const Json& flags, std::initializer_list<const char*> names) {
  std::vector<std::string> set;
  for (const char* name : names) {
    if (flag(flags, name)) {
      set.emplace_back(name);
    }
  }
  return set;
}

void set_experts(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& routing = o.of<config::RoutingOptions>();
  auto& experts = o.of<config::ExpertOptions>();
  o.projection = "experts";
  experts.experts = named(options.at("experts"), {"q", "k", "v", "o"});
  routing.n_experts = c.dim("E");
  routing.top_k = c.dim("k");
  experts.shared_selection = flag(options, "shared_selection");
  routing.gate = value_of(options, "gate", config::Gate::sigmoid);
}

// Coefficients of 1 enable the losses; the runner applies the case's weights.
void set_routing(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& routing = o.of<config::RoutingOptions>();
  auto& heads = o.of<config::RoutedHeadOptions>();
  o.projection = "routed_heads";
  routing.n_experts = c.dim("E");
  o.n_heads = routing.top_k = c.dim("k");
  routing.gate = value_of(options, "gate", config::Gate::softmax_renormalised);
  heads.noisy_routing = !is_null(options, "noise");
  if (heads.noisy_routing && options.value("module", "attention") == "attention") {
    require_built_in(options.at("noise"), "floor", nn::kNoiseFloor);
  }
  if (routing.gate == config::Gate::softmax_renormalised) {
    require_built_in(options, "renormalise_epsilon", nn::kRenormaliseEpsilon);
  }
  heads.switch_coefficient = heads.switch_slots_coefficient = heads.cv_coefficient = heads.z_coefficient =
      heads.entropy_coefficient = 1.0;
}

// The cases' balance loss is top_k times Headroom's "switch".
void set_shared_and_routed(const Case& c, const Json& /*options*/, config::AttentionOptions& o) {
  o.projection = "shared_and_routed";
  o.of<config::SharedHeadOptions>().shared_heads = c.dim("H_shared");
  o.of<config::RoutingOptions>().top_k = c.dim("k");
  o.of<config::RoutedHeadOptions>().switch_coefficient = 1.0;
}

// H is the number of sparse heads.
void set_sparse_heads(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& own = o.of<config::SparseHeadOptions>();
  o.projection = "sparse_heads";
  own.sparsity = options.at("sparsity").get<std::int64_t>();
  own.include_first = flag(options, "include_first");
  own.dense_heads = c.dim("H_dense");
}

void set_composition(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& composed = o.of<config::CompositionOptions>();
  require_among(options, "base", {"identity", "static"});
  const bool fixed = options.at("base") == "static";
  composed.compose = named(options.at("compose"), {"pre", "post"});
  composed.compose_low_rank = named(options.at("low_rank"), {"query", "key"});
  composed.compose_gates = named(options.at("gates"), {"query", "key"});
  const bool dynamic = !composed.compose_low_rank.empty() || !composed.compose_gates.empty();
  if (composed.compose.empty() || (!dynamic && !fixed)) {
    return;
  }
  o.composition = dynamic ? "dynamic" : "static";
  composed.compose_static = dynamic && fixed;
  composed.compose_skip = !fixed;
  composed.compose_rank = c.dims.contains("R") ? c.dim("R") : 1;
  composed.compose_groups = c.dim("G");
  composed.compose_activation = value_of(options, "activation", config::ComposeActivation::gelu);
  if (!composed.compose_low_rank.empty()) {
    require_built_in(options, "factor_epsilon", ops::kFactorEpsilon);
  }
}

void set_keys(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& mixture = o.of<config::MixtureOptions>();
  mixture.keys = value_of(options, "keys", config::Keys::own);
  mixture.n_mixtures = c.dim("K_mix");
  mixture.prior = value_of(options, "prior", config::Prior::none);
  mixture.prior_clamp = flag(options, "prior_clamp");
  if (mixture.n_mixtures == 1 && mixture.keys == config::Keys::own) {
    mixture.keys = config::Keys::single;
  }
}

void set_mixture(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& mixture = o.of<config::MixtureOptions>();
  o.score = "gaussian_mixture";
  set_keys(c, options, o);
  mixture.mixture_score = value_of(options, "score", config::MixtureScore::gaussian);
  mixture.mixing = value_of(options, "mixing", config::Mixing::sum);
  mixture.prior_update = value_of(options, "prior_update", config::PriorUpdate::none);
  if (mixture.prior_update == config::PriorUpdate::soft_e) {
    mixture.soft_e_pairs = value_of(options.at("soft_e"), "pairs", config::SoftEPairs::valid);
    require_built_in(options.at("soft_e"), "epsilon", nn::kResponsibilityEpsilon);
  }
  mixture.mixture_epsilon = number(options, "epsilon", 0.0);
  if (options.contains("coefficients") && options.at("coefficients").is_array()) {
    for (const Json& coefficient : options.at("coefficients")) {
      mixture.mixture_coefficients.push_back(coefficient.get<double>() * std::sqrt(static_cast<double>(o.d_head)));
    }
  }
}

void set_linear(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& linear = o.of<config::LinearOptions>();
  o.score = "linear";
  set_keys(c, options, o);
  o.of<config::MixtureOptions>().prior_update = config::PriorUpdate::gradient;
  linear.feature_map = value_of(options, "feature_map", config::FeatureMap::elu_plus_one);
  linear.linear_mixing = value_of(options, "mixing_point", config::LinearMixing::after_map);
  linear.normaliser = value_of(options, "normaliser", config::Normaliser::sum);
  linear.normaliser_epsilon = number(options, "epsilon", 0.0);
  linear.score_scale = value_of(options, "score_scale", config::ScoreScale::none);
  linear.output_scale = value_of(options, "output_scale", config::OutputScale::none);
}

void set_field(const config::Field& field, const Json& value) {
  std::visit(
      [&]<class Slot>(const Slot& slot) {
        if constexpr (std::is_same_v<Slot, config::Choice>) {
          const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
          if (std::find(slot.names.begin(), slot.names.end(), name) == slot.names.end()) {
            refuse_value(field.key, value);
          }
          slot.set(name);
        } else if constexpr (std::is_same_v<Slot, std::vector<config::LayerOptions>*>) {
          refuse_value(field.key, value);
        } else {
          *slot = value.get<std::remove_pointer_t<Slot>>();
        }
      },
      field.slot);
}

// The options of these families are keys of [model.attention] with the same names.
void set_named(const Case& c, const Json& options, config::AttentionOptions& o) {
  static const std::set<std::string> kShared = {"family", "causal",  "window",  "position", "rope",     "scale",
                                                "bias",   "qk_norm", "padding", "decode",   "objective"};
  if (c.dims.contains("G")) {
    o.n_kv_heads = c.dim("G");
  }
  config::Fields fields;
  config::describe(fields, o);
  for (const auto& [key, value] : options.items()) {
    if (kShared.contains(key) || value.is_null()) {
      continue;
    }
    const auto field = std::find_if(fields.fields().begin(), fields.fields().end(),
                                    [&key = key](const config::Field& f) { return f.key == key; });
    if (field == fields.fields().end()) {
      user_error("options.{}: unknown option", key);
    }
    set_field(*field, value);
  }
}

// `dims` has the widths. The case gives a number of rotary channels, Headroom's option a fraction of the head.
void set_latent(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& latent = o.of<config::LatentOptions>();
  o.projection = "latent";
  latent.kv_rank = c.dim("R_kv");
  latent.q_rank = c.dim("R_q");
  latent.d_rotary = c.dim("d_rotary");
  latent.d_value = c.dim("d_value");
  o.of<config::PositionOptions>().rope_fraction = 1.0;
  if (!is_null(options, "rope")) {
    require_built_in(options.at("rope"), "channels", static_cast<double>(latent.d_rotary));
  }
  require_among(options.at("latent_norm"), "kind", {"rms"});
  o.qk_norm_epsilon = options.at("latent_norm").at("epsilon").get<double>();
}

void set_differential(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& differential = o.of<config::DifferentialOptions>();
  o.composition = "differential";
  o.n_kv_heads = c.dim("G");
  differential.differential_version = options.at("version").get<std::int64_t>();
  if (differential.differential_version != 1 && differential.differential_version != 2) {
    refuse_value("version", options.at("version"));
  }
  if (!is_null(options, "head_norm")) {
    require_among(options.at("head_norm"), "kind", {"rms"});
    differential.head_norm_epsilon = options.at("head_norm").at("epsilon").get<double>();
  }
}

void set_factored(const Case& c, const Json& options, config::AttentionOptions& o) {
  auto& ranks = o.of<config::LatentOptions>();
  o.projection = "factored";
  const Json& factors = options.at("factors");
  if (!flag(factors, "k") || !flag(factors, "v")) {
    refuse_value("factors", factors);
  }
  ranks.kv_rank = c.dim("R");
  ranks.q_rank = flag(factors, "q") ? c.dim("R_q") : 0;
}

using Set = void (*)(const Case&, const Json&, config::AttentionOptions&);

const std::map<std::string, Set>& attention_families() {
  static const std::map<std::string, Set> kFamilies = {
      {"dense", nullptr},
      {"switchhead", set_experts},
      {"moa", set_routing},
      {"dcmha", set_composition},
      {"mgk", set_mixture},
      {"linear", set_linear},
      {"gated", set_named},
      {"sink", set_named},
      {"mla", set_latent},
      {"differential", set_differential},
      {"moh", set_shared_and_routed},
      {"tpa", set_factored},
      {"bias", set_named},
      {"mosa", set_sparse_heads},
  };
  return kFamilies;
}

}  // namespace

bool is_attention_family(const std::string& family) {
  return attention_families().contains(family);
}

bool is_null(const Json& options, const char* key) {
  return !options.contains(key) || options.at(key).is_null();
}

void require_among(const Json& options, const char* key, const std::vector<std::string>& names) {
  if (!is_null(options, key) &&
      std::ranges::none_of(names, [&](const std::string& name) { return options.at(key) == name; })) {
    refuse_value(key, options.at(key));
  }
}

bool flag(const Json& options, const char* key) {
  return options.contains(key) && options.at(key).is_boolean() && options.at(key).get<bool>();
}

nn::AttentionPlace place_of(const Case& c, const Json& options) {
  nn::AttentionPlace place;
  place.d_model = c.dim("d_model");
  place.causal = flag(options, "causal");
  place.cross = flag(options, "cross");
  place.window = window_of(options);
  place.layer = is_null(options, "layer") ? 0 : options.at("layer").get<std::int64_t>();
  place.context_length = c.dim("T");
  place.memory_length = c.dims.contains("M") ? c.dim("M") : 0;
  if (!is_null(options, "soft_e")) {
    place.context_length = c.dim("P") - place.memory_length;  // the position table may be longer
  }
  return place;
}

config::AttentionOptions attention_options(const Case& c, const std::string& family, const Json& options) {
  const auto found = attention_families().find(family);
  if (found == attention_families().end()) {
    user_error("unknown attention family {}", family);
  }
  config::AttentionOptions o;
  o.n_heads = c.dims.contains("H") ? c.dim("H") : 1;
  o.d_head = c.dim("d_head");
  o.bias = flag(options, "bias");
  o.of<config::PositionOptions>().position_bias = flag(options, "position_bias");
  o.scale = value_of(options, "scale", config::Scale::inv_sqrt);
  set_qk_norm(options, o);
  set_position(c, options, o);
  if (found->second != nullptr) {
    found->second(c, options, o);
  }
  return o;
}

config::Activation activation_of(const Json& options, const char* key) {
  return value_of(options, key, config::Activation::relu);
}

config::MlpOptions mlp_options(const Case& c, const Json& ffn) {
  config::MlpOptions o;
  o.kind = value_of(ffn, "kind", config::MlpKind::dense);
  o.activation = activation_of(ffn, "activation");
  o.bias = flag(ffn, "bias");
  if (o.kind == config::MlpKind::experts) {
    o.d_hidden = c.dim("d_expert");
    o.n_experts = c.dims.contains("E_ff") ? c.dim("E_ff") : c.dim("E");
    o.top_k = c.dims.contains("k_ff") ? c.dim("k_ff") : c.dim("k");
  } else {
    o.d_hidden = c.dim("d_ff");
  }
  return o;
}

void set_stack(const Case& c, const Json& o, config::ModelOptions& model) {
  model.n_layers = c.dims.contains("L") ? c.dim("L") : 1;
  model.d_model = c.dim("d_model");
  model.arrangement = value_of(o, "arrangement", config::Arrangement::sequential);
  model.norm = value_of(o.at("norm"), "kind", config::Norm::layer);
  model.norm_epsilon = o.at("norm").at("epsilon").get<double>();
  const Json& attention = o.at("attention");
  model.attention = attention_options(c, attention.at("family").get<std::string>(), attention);
  model.attention.window = window_of(attention);
  model.mlp = mlp_options(c, o.at("ffn"));
}

}  // namespace headroom::golden
