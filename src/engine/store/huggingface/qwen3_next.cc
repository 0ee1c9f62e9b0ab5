// Qwen3-Next: three layers of Gated DeltaNet to one of gated attention with norms of queries and keys; RMS norms with
// the gain 1 + weight, gated experts beside a gated shared one, in some layers a gated MLP instead.
#include <algorithm>

#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::store {
namespace {

constexpr double kGainOffset = 1.0;  // of a norm whose stored weight is 0
constexpr const char* kLinear = "linear_attention";

bool is_delta(const config::ModelOptions& layer) {
  return layer.attention.score->is_recurrent();
}

bool is_full(const config::ModelOptions& layer) {
  return !is_delta(layer);
}

bool has_experts(const config::ModelOptions& layer) {
  return layer.mlp.kind == config::MlpKind::experts;
}

bool has_gated_mlp(const config::ModelOptions& layer) {
  return layer.mlp.kind == config::MlpKind::gated;
}

// The first layer of a kind, or model.attention and model.mlp if there is none.
config::ModelOptions first_layer(const config::ModelOptions& o, bool (*is_of_kind)(const config::ModelOptions&)) {
  for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
    if (const config::ModelOptions own = o.of_layer(layer); is_of_kind(own)) {
      return own;
    }
  }
  return o;
}

// Returns the option of an MLP that prevents an export; empty: none.
std::string mlp_obstacle(const config::MlpOptions& mlp) {
  const bool experts = mlp.kind == config::MlpKind::experts;
  const bool routes = mlp.gate == config::Gate::softmax || mlp.gate == config::Gate::softmax_top_k;
  return first_of({{!experts && mlp.kind != config::MlpKind::gated, "mlp.kind"},
                   {!experts && mlp.bias, "mlp.bias"},
                   {mlp.activation != config::Activation::silu, "mlp.activation"},
                   {experts && mlp.expert_kind != config::ExpertKind::gated, "mlp.expert_kind"},
                   {experts && mlp.expert_bias != config::ExpertBias::none, "mlp.expert_bias"},
                   {experts && !routes, "mlp.gate"},
                   {experts && mlp.gate_scale != 1.0, "mlp.gate_scale"},
                   {experts && mlp.d_shared == 0, "mlp.d_shared"},
                   {experts && !mlp.shared_gate, "mlp.shared_gate"}});
}

class Qwen3Next : public Architecture {
 public:
  Qwen3Next() : Architecture({.kinds = {"qwen3_next"}, .norm_offset = kGainOffset}) {}

  config::ModelOptions read(const Settings& s) const override {
    s.require("attention_bias", !s.flag("attention_bias", false));
    config::ModelOptions o = read_decoder(s, {.vocabulary_size = 151936,
                                              .n_layers = 48,
                                              .d_model = 2048,
                                              .context_length = 32768,
                                              .n_heads = 16,
                                              .n_kv_heads = 2,
                                              .d_head = 256});
    config::AttentionOptions& a = o.attention;
    a.qk_norm = true;
    a.qk_norm_epsilon = o.norm_epsilon;
    a.gate_output = "element";
    read_rope(s, a, {.fraction = 0.25});
    read_layers(s, o);
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    bool delta = false, other = false;
    const config::ModelOptions linear = first_layer(o, is_delta), full = first_layer(o, is_full);
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      const config::ModelOptions own = o.of_layer(layer);
      delta = delta || is_delta(own);
      other = other || (!is_delta(own) && own.attention.score != "dot");
      if (const std::string obstacle = mlp_obstacle(own.mlp); !obstacle.empty()) {
        return obstacle;
      }
    }
    const config::AttentionOptions &a = full.attention, plain;
    const bool gated = is_delta(full) || a.gate_output == "element";
    return first_of({{!delta || other, "attention.score"},
                     {o.norm != config::Norm::rms, "norm"},
                     {o.norm_position != config::NormPosition::pre, "norm_position"},
                     {o.arrangement != config::Arrangement::sequential, "arrangement"},
                     {o.scaled_embeddings, "scaled_embeddings"},
                     {!gated, "attention.gate_output"},
                     {a.projection != plain.projection, "attention.projection"},
                     {a.composition != plain.composition, "attention.composition"},
                     {a.window > 0, "attention.window"},
                     {!is_delta(full) && a.position != "rope", "attention.position"},
                     {!is_delta(full) && !a.qk_norm, "attention.qk_norm"},
                     {a.bias || linear.attention.bias, "attention.bias"},
                     {linear.attention.projection != plain.projection, "attention.projection"},
                     {linear.attention.gate_output != plain.gate_output, "attention.gate_output"},
                     {a.qk_norm_epsilon != o.norm_epsilon || linear.attention.qk_norm_epsilon != o.norm_epsilon,
                      "attention.qk_norm_epsilon"}});
  }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::ModelOptions full = first_layer(o, is_full);
    const config::AttentionOptions delta = first_layer(o, is_delta).attention;
    const auto& position = full.attention.of<config::PositionOptions>();
    Json types = Json::array(), rope = rope_parameters(position);
    rope["partial_rotary_factor"] = position.rope_fraction;
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      types.push_back(is_delta(o.of_layer(layer)) ? kLinear : kFullAttention);
    }
    Json json = write_decoder(full, "qwen3_next", "Qwen3NextForCausalLM");
    json.update({{"intermediate_size", first_layer(o, has_gated_mlp).mlp.d_hidden},
                 {"hidden_act", activation_name(o.mlp.activation)},
                 {"attention_bias", false},
                 {"layer_types", types},
                 {"linear_num_key_heads", delta.score->projected_heads(delta, 'k')},
                 {"linear_num_value_heads", delta.n_heads},
                 {"linear_key_head_dim", delta.d_head},
                 {"linear_value_head_dim", delta.value_width()},
                 {"linear_conv_kernel_dim", delta.of<config::GatedDeltaOptions>().delta_conv_width},
                 {"partial_rotary_factor", position.rope_fraction},
                 {"rope_theta", position.rope_base},
                 {"rope_parameters", rope}});
    write_experts(o, json);
    return json;
  }

 private:
  static void write_experts(const config::ModelOptions& o, Json& json) {
    const config::ModelOptions layer = first_layer(o, has_experts);
    json["num_experts"] = has_experts(layer) ? layer.mlp.n_experts : 0;
    if (!has_experts(layer)) {
      return;
    }
    Json without = Json::array();
    for (std::int64_t l = 0; l < o.n_layers; ++l) {
      if (!has_experts(o.of_layer(l))) {
        without.push_back(l);
      }
    }
    json.update({{"num_experts_per_tok", layer.mlp.top_k},
                 {"moe_intermediate_size", layer.mlp.d_hidden},
                 {"shared_expert_intermediate_size", layer.mlp.d_shared},
                 {"norm_topk_prob", layer.mlp.gate == config::Gate::softmax_top_k},
                 {"decoder_sparse_step", 1},
                 {"mlp_only_layers", without}});
  }

  static config::MlpOptions read_gated_mlp(const Settings& s) {
    config::MlpOptions mlp;
    mlp.kind = config::MlpKind::gated;
    mlp.d_hidden = s.size("intermediate_size", 5632);
    mlp.activation = s.activation("hidden_act", "silu");
    if (mlp.activation != config::Activation::silu) {
      s.refuse("hidden_act", "must be silu, which the convolution of Gated DeltaNet has here");
    }
    mlp.bias = false;
    return mlp;
  }

  // Probabilities that are divided by their sum over the routed experts are a softmax over these.
  static config::MlpOptions read_expert_mlp(const Settings& s, config::MlpOptions mlp) {
    mlp.kind = config::MlpKind::experts;
    mlp.d_hidden = s.size("moe_intermediate_size", 512);
    mlp.n_experts = s.size("num_experts", 512);
    mlp.top_k = s.size("num_experts_per_tok", 10);
    mlp.expert_kind = config::ExpertKind::gated;
    mlp.gate = s.flag("norm_topk_prob", true) ? config::Gate::softmax_top_k : config::Gate::softmax;
    mlp.d_shared = s.size("shared_expert_intermediate_size", 512);
    mlp.shared_gate = true;
    mlp.entropy_coefficient = 0.0;
    return mlp;
  }

  // Which layers have experts: every decoder_sparse_step-th, except those of mlp_only_layers.
  static std::vector<bool> read_expert_layers(const Settings& s, std::int64_t n_layers) {
    const bool any = s.number("num_experts", 512.0) > 0.0;
    const std::int64_t step = s.size("decoder_sparse_step", 1);
    const std::vector<std::int64_t> without = s.wholes("mlp_only_layers");
    std::vector<bool> experts;
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
      experts.push_back(any && (layer + 1) % step == 0 && std::ranges::find(without, layer) == without.end());
    }
    return experts;
  }

  // Which layers are Gated DeltaNet: layer_types, or all but every full_attention_interval-th.
  static std::vector<bool> read_kinds(const Settings& s, std::int64_t n_layers) {
    const std::vector<std::string> types = s.texts("layer_types");
    const std::int64_t interval = s.size("full_attention_interval", 4);
    if (!types.empty() && std::ssize(types) != n_layers) {
      s.refuse("layer_types", fmt::format("must have {} entries, one for each layer", n_layers));
    }
    std::vector<bool> delta;
    for (std::int64_t layer = 0; layer < n_layers; ++layer) {
      const std::string usual = (layer + 1) % interval == 0 ? kFullAttention : kLinear;
      const std::string type = types.empty() ? usual : types[static_cast<std::size_t>(layer)];
      if (type != kFullAttention && type != kLinear) {
        s.refuse("layer_types", "must be linear_attention or full_attention");
      }
      delta.push_back(type == kLinear);
    }
    return delta;
  }

  static void read_layers(const Settings& s, config::ModelOptions& o) {
    const std::int64_t value_heads = s.size("linear_num_value_heads", 32);
    const std::int64_t key_heads = s.size("linear_num_key_heads", 16);
    s.quotient({"linear_num_key_heads", key_heads}, {"linear_num_value_heads", value_heads});
    const config::LayerOptions::Keys delta = {
        {"score", "\"gated_delta\""},
        {"position", "\"none\""},
        {"gate_output", "\"none\""},
        {"qk_norm", "false"},
        {"n_heads", fmt::format("{}", value_heads)},
        {"n_kv_heads", "0"},
        {"d_head", fmt::format("{}", s.size("linear_key_head_dim", 128))},
        {"delta_key_heads", fmt::format("{}", key_heads)},
        {"delta_d_value", fmt::format("{}", s.size("linear_value_head_dim", 128))},
        {"delta_conv_width", fmt::format("{}", s.size("linear_conv_kernel_dim", 4))}};
    const std::vector<bool> linear = read_kinds(s, o.n_layers), experts = read_expert_layers(s, o.n_layers);
    const config::MlpOptions gated = read_gated_mlp(s);
    const bool any_experts = std::ranges::find(experts, true) != experts.end();
    o.mlp = any_experts ? read_expert_mlp(s, gated) : gated;
    const config::LayerOptions::Keys without = {{"kind", "\"gated\""}, {"d_hidden", fmt::format("{}", gated.d_hidden)}};
    std::vector<config::LayerOptions> keys;
    for (std::size_t layer = 0; layer < linear.size(); ++layer) {
      keys.push_back({.repeat = 1,
                      .attention = linear[layer] ? delta : config::LayerOptions::Keys(),
                      .mlp = any_experts && !experts[layer] ? without : config::LayerOptions::Keys()});
    }
    set_layers(o, keys);
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm", kGainOffset);
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm", kGainOffset);
    map_mlp(mappings, o, ours + "ffn.", theirs + "mlp.");
    is_delta(o) ? map_delta(mappings, o, ours + "attention.", theirs + "linear_attn.")
                : map_full(mappings, o, ours + "attention.", theirs + "self_attn.");
  }

  static void map_mlp(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                      const std::string& theirs) {
    if (!has_experts(o)) {
      map_gated_mlp(mappings, o.mlp, o.d_model, ours, theirs);
      return;
    }
    map_experts(mappings, o.mlp, o.d_model, ours, theirs);
    map_shared_expert(mappings, o.mlp, o.d_model, ours, theirs + "shared_expert.");
    mappings.push_back(transposed(ours + "w_shared_gate", theirs + "shared_expert_gate.weight", o.d_model, 1));
  }

  // q_proj holds the queries and the gates of each head.
  static void map_full(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                       const std::string& theirs) {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t d = o.d_model, e = a.d_head;
    const auto input = [&](const char* parameter, const char* tensor, std::int64_t heads, std::int64_t width,
                           std::int64_t begin) {
      mappings.push_back({.parameter = ours + parameter,
                          .tensor = theirs + tensor,
                          .stored = {heads * width, d},
                          .view = {heads, width, d},
                          .range = Range{1, begin, e},
                          .order = {2, 0, 1}});
    };
    input("w_q", "q_proj.weight", a.n_heads, 2 * e, 0);
    input("w_gate", "q_proj.weight", a.n_heads, 2 * e, e);
    input("w_k", "k_proj.weight", a.kv_heads(), e, 0);
    input("w_v", "v_proj.weight", a.kv_heads(), e, 0);
    map_output(mappings, d, a.n_heads, a.value_width(), ours, theirs + "o_proj.weight");
    map_qk_norms(mappings, e, ours, theirs, kGainOffset);
  }

  // in_proj_qkvz holds q, k, and the v and z of its value heads for each key head; in_proj_ba holds beta and decay.
  static void map_delta(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                        const std::string& theirs) {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t d = o.d_model, h = a.n_heads, g = a.score->projected_heads(a, 'k'), r = h / g;
    const std::int64_t e = a.d_head, w = a.value_width();
    const Mapping qkvz{.tensor = theirs + "in_proj_qkvz.weight",
                       .stored = {2 * g * e + 2 * h * w, d},
                       .view = {g, 2 * e + 2 * r * w, d}};
    const Mapping ba{.tensor = theirs + "in_proj_ba.weight", .stored = {2 * h, d}, .view = {g, 2 * r, d}};
    const auto of_key_heads = [&](const char* parameter, std::int64_t begin) {
      Mapping mapping = qkvz;
      mapping.parameter = ours + parameter;
      mapping.range = Range{1, begin, e};
      mapping.order = {2, 0, 1};
      mappings.push_back(mapping);
    };
    // Columns [begin + j width, + width) of a key head belong to its value head j.
    const auto of_value_heads = [&](const char* parameter, const Mapping& from, std::int64_t begin, std::int64_t width,
                                    const std::vector<std::int64_t>& shape) {
      for (std::int64_t head = 0; head < h; ++head) {
        Mapping mapping = from;
        mapping.parameter = ours + parameter;
        mapping.range = Range{1, begin + head % r * width, width};
        mapping.part = std::pair(std::int64_t{0}, head / r);
        mapping.order = {1, 0};
        mapping.shape = shape;
        mapping.place = Range{1, head, 1};
        mappings.push_back(mapping);
      }
    };
    of_key_heads("w_q", 0);
    of_key_heads("w_k", e);
    of_value_heads("w_v", qkvz, 2 * e, w, {d, h, w});
    of_value_heads("w_z", qkvz, 2 * e + r * w, w, {d, h, w});
    of_value_heads("w_beta", ba, 0, 1, {d, h});
    of_value_heads("w_decay", ba, r, 1, {d, h});
    map_convolution(mappings, o, ours, theirs + "conv1d.weight");
    mappings.push_back(same(ours + "a_log", theirs + "A_log", {h}));
    mappings.push_back(same(ours + "dt_bias", theirs + "dt_bias", {h}));
    mappings.push_back(same(ours + "o_norm", theirs + "norm.weight", {w}));
    map_output(mappings, d, h, w, ours, theirs + "out_proj.weight");
  }

  static void map_convolution(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                              const std::string& tensor) {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t taps = a.of<config::GatedDeltaOptions>().delta_conv_width;
    std::int64_t all = 0, begin = 0;
    for (const char which : {'q', 'k', 'v'}) {
      all += a.score->projected_heads(a, which) * a.projected_width(which);
    }
    for (const char which : {'q', 'k', 'v'}) {
      const std::int64_t heads = a.score->projected_heads(a, which), width = a.projected_width(which);
      mappings.push_back({.parameter = fmt::format("{}conv_{}", ours, which),
                          .tensor = tensor,
                          .stored = {all, 1, taps},
                          .range = Range{0, begin, heads * width},
                          .shape = {heads, width, taps}});
      begin += heads * width;
    }
  }
};

}  // namespace

const Architecture& qwen3_next() {
  static const Qwen3Next kQwen3Next;
  return kQwen3Next;
}

}  // namespace headroom::store
