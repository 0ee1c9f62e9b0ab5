// Qwen3-Next: three layers of Gated DeltaNet to one of gated attention with norms of queries and keys; RMS norms with
// the gain 1 + weight, gated experts beside a gated shared one, in some layers a gated MLP instead.
#include <algorithm>

#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

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

// Returns the first layer of a kind, or model.attention and model.mlp if no layer is of that kind.
config::ModelOptions first_layer(const config::ModelOptions& o, bool (*is_of_kind)(const config::ModelOptions&)) {
  for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
    if (const config::ModelOptions own = o.of_layer(layer); is_of_kind(own)) {
      return own;
    }
  }
  return o;
}

class Qwen3Next : public Architecture {
 public:
  Qwen3Next() : Architecture({.kinds = {{"qwen3_next", -1}}, .norm_offset = kGainOffset}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    k.model_type("qwen3_next", "Qwen3NextForCausalLM");
    k.only("attention_bias", false);
    const config::ModelOptions whole = o;
    if (k.given() == nullptr) {
      o = first_layer(whole, is_full);
      o.attention.n_kv_heads = o.attention.kv_heads();
    }
    describe_decoder(k, o,
                     {.vocabulary_size = 151936,
                      .n_layers = 48,
                      .d_model = 2048,
                      .context_length = 32768,
                      .n_heads = 16,
                      .n_kv_heads = 2,
                      .d_head = 256});
    config::AttentionOptions& a = o.attention;
    k.always(a.qk_norm, true);
    k.always(a.qk_norm_epsilon, o.norm_epsilon);
    k.always(a.gate_output, "element");
    describe_rope(k, a, {.fraction = 0.25});
    k.only_written({{"partial_rotary_factor", a.of<config::PositionOptions>().rope_fraction}});
    k.given() != nullptr ? read_layers(k, o) : write_layers(k, whole);
  }

  static void describe_delta(Keys& k, config::AttentionOptions& a) {
    auto& delta = a.of<config::GatedDeltaOptions>();
    k.size("linear_num_value_heads", a.n_heads, 32);
    k.size("linear_num_key_heads", delta.delta_key_heads, 16);
    k.size("linear_key_head_dim", a.d_head, 128);
    k.size("linear_value_head_dim", delta.delta_d_value, 128);
    k.size("linear_conv_kernel_dim", delta.delta_conv_width, 4);
    k.always(a.score, "gated_delta");
    k.always(a.position, "none");
    k.always(a.gate_output, "none");
    k.always(a.qk_norm, false);
    k.always(a.n_kv_heads, 0);
    if (const Settings* const s = k.given()) {
      s->quotient({"linear_num_key_heads", delta.delta_key_heads}, {"linear_num_value_heads", a.n_heads});
    }
  }

  static void describe_gated_mlp(Keys& k, config::MlpOptions& mlp) {
    k.always(mlp.kind, config::MlpKind::gated);
    k.size("intermediate_size", mlp.d_hidden, 5632);
    k.activation("hidden_act", mlp.activation, "silu");
    if (k.given() != nullptr && mlp.activation != config::Activation::silu) {
      k.given()->refuse("hidden_act", "must be silu, which the convolution of Gated DeltaNet has here");
    }
    k.always(mlp.bias, false);
  }

  // Renormalising the routed experts' probabilities is the same as a softmax over the routed experts.
  static void describe_experts(Keys& k, config::MlpOptions& mlp) {
    k.always(mlp.kind, config::MlpKind::experts);
    k.size("moe_intermediate_size", mlp.d_hidden, 512);
    k.size("num_experts", mlp.n_experts, 512);
    k.size("num_experts_per_tok", mlp.top_k, 10);
    k.always(mlp.expert_kind, config::ExpertKind::gated);
    bool of_routed = mlp.gate == config::Gate::softmax_top_k;
    k.flag("norm_topk_prob", of_routed, true);
    k.always(mlp.gate, of_routed ? config::Gate::softmax_top_k : config::Gate::softmax);
    k.size("shared_expert_intermediate_size", mlp.d_shared, 512);
    k.always(mlp.shared_gate, true);
    k.always(mlp.entropy_coefficient, 0.0);
  }

  // Returns which layers have experts: every decoder_sparse_step-th, except those in mlp_only_layers.
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

  // Returns which layers are Gated DeltaNet: per layer_types, or all but every full_attention_interval-th.
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

  static void read_layers(Keys& k, config::ModelOptions& o) {
    const Settings& s = *k.given();
    config::AttentionOptions delta = o.attention;
    describe_delta(k, delta);
    const std::vector<bool> linear = read_kinds(s, o.n_layers), experts = read_expert_layers(s, o.n_layers);
    describe_gated_mlp(k, o.mlp);
    const config::MlpOptions gated = o.mlp;
    if (std::ranges::find(experts, true) != experts.end()) {
      describe_experts(k, o.mlp);
    }
    std::vector<config::LayerOptions> keys(linear.size());
    for (std::size_t layer = 0; layer < linear.size(); ++layer) {
      if (linear[layer]) {
        keys[layer].attention = config::differing_keys(delta, o.attention);
      }
      if (!experts[layer]) {
        keys[layer].mlp = config::differing_keys(gated, o.mlp);
      }
    }
    set_layers(o, keys);
  }

  // Without Gated DeltaNet, no layer_types is written; reading the keys back then finds layers that the model lacks.
  static void write_layers(Keys& k, const config::ModelOptions& o) {
    Json types = Json::array(), without_experts = Json::array();
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      types.push_back(is_delta(o.of_layer(layer)) ? kLinear : kFullAttention);
      if (!has_experts(o.of_layer(layer))) {
        without_experts.push_back(layer);
      }
    }
    if (config::AttentionOptions delta = first_layer(o, is_delta).attention; delta.score->is_recurrent()) {
      auto& options = delta.of<config::GatedDeltaOptions>();
      options.delta_key_heads = delta.score->projected_heads(delta, 'k');
      options.delta_d_value = delta.value_width();
      describe_delta(k, delta);
      k.only_written({{"layer_types", types}});
    }
    config::MlpOptions gated = first_layer(o, has_gated_mlp).mlp, experts = first_layer(o, has_experts).mlp;
    describe_gated_mlp(k, gated);
    if (experts.kind == config::MlpKind::experts) {
      describe_experts(k, experts);
      k.only_written({{"decoder_sparse_step", 1}, {"mlp_only_layers", without_experts}});
    } else {
      k.only_written({{"num_experts", 0}});
    }
  }

  void map_layer(MappingList& layer, const config::ModelOptions& o) const override {
    layer.norm("norm_1", "input_layernorm", kGainOffset);
    layer.norm("norm_2", "post_attention_layernorm", kGainOffset);
    if (has_experts(o)) {
      layer.experts("mlp.shared_expert.");
      layer.add("ffn.w_shared_gate", "mlp.shared_expert_gate.weight", "1 d -> d 1");
    } else {
      layer.gated_mlp();
    }
    is_delta(o) ? map_delta(layer, o) : map_full(layer, o.attention);
  }

  // q_proj holds the queries and the gates of each head.
  static void map_full(MappingList& layer, const config::AttentionOptions& a) {
    const std::int64_t e = a.d_head;
    layer.set('x', 2 * e);
    layer.add("attention.w_q", "self_attn.q_proj.weight", "(h x) d -> d h x").range = {1, 0, e};
    layer.add("attention.w_gate", "self_attn.q_proj.weight", "(h x) d -> d h x").range = {1, e, e};
    layer.add("attention.w_k", "self_attn.k_proj.weight", "(k e) d -> d k e");
    layer.add("attention.w_v", "self_attn.v_proj.weight", "(k e) d -> d k e");
    layer.add("attention.w_o", "self_attn.o_proj.weight", "d (h w) -> h w d");
    layer.add("attention.q_norm", "self_attn.q_norm.weight", "e").offset = kGainOffset;
    layer.add("attention.k_norm", "self_attn.k_norm.weight", "e").offset = kGainOffset;
  }

  // in_proj_qkvz holds, per key head, q, k, and its value heads' v and z; in_proj_ba holds beta and decay.
  static void map_delta(MappingList& layer, const config::ModelOptions& o) {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t d = o.d_model, h = a.n_heads, g = a.score->projected_heads(a, 'k'), r = h / g;
    const std::int64_t e = a.d_head, w = a.value_width(), taps = a.of<config::GatedDeltaOptions>().delta_conv_width;
    const std::string qkvz = "linear_attn.in_proj_qkvz.weight", ba = "linear_attn.in_proj_ba.weight";
    layer.set('j', g);
    layer.set('z', 2 * e + 2 * r * w);
    layer.set('b', 2 * r);
    layer.set('y', 2 * g * e + h * w);
    layer.set('t', taps);
    layer.add("attention.w_q", qkvz, "(j z) d -> d j z").range = {1, 0, e};
    layer.add("attention.w_k", qkvz, "(j z) d -> d j z").range = {1, e, e};
    // Columns [begin + i width, + width) of a key head belong to its value head i.
    const auto of_value_heads = [&](const char* parameter, const std::string& tensor, std::int64_t begin,
                                    std::int64_t width, const std::vector<std::int64_t>& shape) {
      const char column = tensor == qkvz ? 'z' : 'b';
      for (std::int64_t head = 0; head < h; ++head) {
        Mapping& one = layer.add(parameter, tensor, fmt::format("(j:{} {}) d -> d {}", head / r, column, column));
        one.range = {1, begin + head % r * width, width};
        one.shape = shape;
        one.place = {1, head, 1};
      }
    };
    of_value_heads("attention.w_v", qkvz, 2 * e, w, {d, h, w});
    of_value_heads("attention.w_z", qkvz, 2 * e + r * w, w, {d, h, w});
    of_value_heads("attention.w_beta", ba, 0, 1, {d, h});
    of_value_heads("attention.w_decay", ba, r, 1, {d, h});
    for (std::int64_t begin = 0; const char which : {'q', 'k', 'v'}) {
      const std::int64_t heads = a.score->projected_heads(a, which), width = a.projected_width(which);
      Mapping& one = layer.add(fmt::format("attention.conv_{}", which), "linear_attn.conv1d.weight", "y 1 t");
      one.range = {0, begin, heads * width};
      one.shape = {heads, width, taps};
      begin += heads * width;
    }
    layer.add("attention.a_log", "linear_attn.A_log", "h");
    layer.add("attention.dt_bias", "linear_attn.dt_bias", "h");
    layer.add("attention.o_norm", "linear_attn.norm.weight", "w");
    layer.add("attention.w_o", "linear_attn.out_proj.weight", "d (h w) -> h w d");
  }
};

}  // namespace

const Architecture& qwen3_next() {
  static const Qwen3Next kQwen3Next;
  return kQwen3Next;
}

}  // namespace headroom::store
