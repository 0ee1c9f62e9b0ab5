// DeepSeek-V2: latent attention; gated MLPs in the first layers, then experts: routed gated experts and shared ones.
#include <cmath>

#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

constexpr double kLatentEpsilon = 1e-6;  // of the latents' norms, regardless of rms_norm_eps

// Returns the number of leading layers without experts.
std::int64_t n_dense(const config::ModelOptions& o) {
  std::int64_t n = 0;
  while (n < o.n_layers && o.of_layer(n).mlp.kind == config::MlpKind::gated) {
    ++n;
  }
  return n;
}

class DeepseekV2 : public Architecture {
 public:
  DeepseekV2()
      : Architecture({.kinds = {{"deepseek_v2"}},
                      .ignored = {".self_attn.rotary_emb.inv_freq"},
                      .aliases = {{"num_experts", "n_routed_experts"}}}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    k.model_type("deepseek_v2", "DeepseekV2ForCausalLM");
    describe_decoder(k, o, {.vocabulary_size = 102400, .n_layers = 32, .d_model = 4096, .context_length = 2048});
    describe_attention(k, o.attention);
    describe_mlps(k, o);
  }

  static void describe_attention(Keys& k, config::AttentionOptions& a) {
    k.always(a.projection, "latent");
    k.size("num_attention_heads", a.n_heads, 32);
    k.only("num_key_value_heads", a.n_heads);
    k.only("attention_bias", false);
    auto& latent = a.of<config::LatentOptions>();
    k.size("kv_lora_rank", latent.kv_rank, 512);
    if (const Settings* const s = k.given()) {
      latent.q_rank = s->size_or_none("q_lora_rank", 1536);
    } else {
      latent.d_rotary = a.projection->rotary_channels(a);
      latent.d_value = a.value_width();
    }
    k.only_written({{"q_lora_rank", latent.q_rank > 0 ? Json(latent.q_rank) : Json()}});
    k.size("qk_rope_head_dim", latent.d_rotary, 64);
    k.size("v_head_dim", latent.d_value, 128);
    std::int64_t rest = a.d_head - latent.d_rotary;
    k.size("qk_nope_head_dim", rest, 128);
    k.always(a.d_head, latent.d_rotary + rest);
    k.always(a.qk_norm_epsilon, kLatentEpsilon);
    describe_rope(k, a, {.fraction = 1.0});
    if (const Settings* const s = k.given()) {
      for (const auto& [key, size] : {std::pair("kv_lora_rank", latent.kv_rank), std::pair("qk_nope_head_dim", rest)}) {
        if (size % 2 != 0) {
          s->refuse(key, "must be even");
        }
      }
      read_scale(*s, a);
    } else {
      write_scale(a, k.written().at("rope_parameters"));
    }
  }

  // With scaled positions, scores are multiplied by m^2, m = 0.1 mscale_all_dim ln(factor) + 1.
  static void read_scale(const Settings& s, config::AttentionOptions& a) {
    const auto& position = a.of<config::PositionOptions>();
    const Settings rope = s.in("rope_parameters"), scaling = s.in("rope_scaling");
    const double all = scaling_place(rope, scaling).number("mscale_all_dim", 0.0);
    if (position.rope_scaling != config::RopeScaling::none && all != 0.0 && position.rope_factor > 1.0) {
      const double m = 0.1 * all * std::log(position.rope_factor) + 1.0;
      a.of<config::DotOptions>().scale_width = rounded(static_cast<double>(a.d_head) / std::pow(m, 4.0));
    }
  }

  // Rounds so that export and import reproduce the number.
  static double rounded(double number) {
    constexpr double kDigits = 1e9;
    return std::round(number * kDigits) / kDigits;
  }

  static void write_scale(const config::AttentionOptions& a, Json& rope) {
    const double width = a.of<config::DotOptions>().scale_width;
    const double factor = a.of<config::PositionOptions>().rope_factor;
    if (width > 0.0 && factor > 1.0) {
      const double m = std::pow(static_cast<double>(a.d_head) / width, 0.25);
      rope["mscale_all_dim"] = (m - 1.0) / (0.1 * std::log(factor));
    }
  }

  static void describe_mlps(Keys& k, config::ModelOptions& o) {
    const Settings* const s = k.given();
    if (s != nullptr && s->text("topk_method", "greedy") == "group_limited_greedy") {
      s->require("topk_method", s->has("n_group") && s->number("n_group", 0.0) == s->number("topk_group", 0.0));
    } else {
      k.only("topk_method", "greedy");
    }
    k.only("norm_topk_prob", false);
    k.only("scoring_func", "softmax");
    k.only("moe_layer_freq", 1);
    const std::int64_t dense = n_dense(o);
    std::int64_t hidden = o.of_layer(0).mlp.d_hidden;
    if (s == nullptr) {
      k.only_written({{"first_k_dense_replace", dense}, {"mlp_bias", dense > 0 && o.of_layer(0).mlp.bias}});
      o = o.of_layer(o.n_layers - 1);
    } else {
      k.only("mlp_bias", false);
    }
    k.size("intermediate_size", hidden, 11008);
    config::MlpOptions& mlp = o.mlp;
    k.always(mlp.kind, config::MlpKind::experts);
    k.always(mlp.bias, false);
    k.activation("hidden_act", mlp.activation, "silu");
    k.always(mlp.expert_kind, config::ExpertKind::gated);
    k.always(mlp.gate, config::Gate::softmax);
    k.always(mlp.entropy_coefficient, 0.0);
    k.size("moe_intermediate_size", mlp.d_hidden, 1407);
    k.size("n_routed_experts", mlp.n_experts, 64);
    k.number("routed_scaling_factor", mlp.gate_scale, 1.0);
    std::int64_t shared = mlp.d_shared / mlp.d_hidden;
    k.size("n_shared_experts", shared, 2);
    k.always(mlp.d_shared, mlp.d_hidden * shared);
    if (s == nullptr) {
      k.only_written({{"num_experts_per_tok", mlp.top_k}});
      return;
    }
    mlp.top_k = s->size("num_experts_per_tok");  // has no default
    const double first = s->number("first_k_dense_replace", 0.0);
    if (!(first >= 0.0 && first < static_cast<double>(o.n_layers) && first == std::floor(first))) {
      s->refuse("first_k_dense_replace",
                fmt::format("must be a whole number below num_hidden_layers = {}", o.n_layers));
    }
    if (first > 0.0) {
      const auto n = static_cast<std::int64_t>(first);
      o.layers = {
          {.repeat = n, .attention = {}, .mlp = {{"d_hidden", fmt::format("{}", hidden)}, {"kind", "\"gated\""}}},
          {.repeat = o.n_layers - n, .attention = {}, .mlp = {}}};
    }
  }

  void map_layer(MappingList& layer, const config::ModelOptions& o) const override {
    layer.norm("norm_1", "input_layernorm");
    layer.norm("norm_2", "post_attention_layernorm");
    map_attention(layer, o.attention, o.d_model);
    o.mlp.kind == config::MlpKind::gated ? layer.gated_mlp() : layer.experts("mlp.shared_experts.");
  }

  // In the files, a head's unrotated channels come first, and rotated pairs are adjacent channels.
  static void map_attention(MappingList& layer, const config::AttentionOptions& a, std::int64_t d) {
    const auto& latent = a.of<config::LatentOptions>();
    const std::int64_t e = a.d_head, p = latent.d_rotary, n = e - p, w = a.value_width(), r = latent.kv_rank;
    const std::int64_t from = latent.q_rank > 0 ? latent.q_rank : d;
    layer.set('f', from);
    layer.set('x', e / 2);
    layer.set('r', r);
    layer.set('y', r + p);
    layer.set('z', (r + p) / 2);
    layer.set('u', n + w);
    if (latent.q_rank > 0) {
      layer.add("attention.w_q_down", "self_attn.q_a_proj.weight", "f d -> d f");
      layer.add("attention.q_down_norm", "self_attn.q_a_layernorm.weight", "f");
    }
    const std::string q = latent.q_rank > 0 ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight";
    for (const bool rotary : {false, true}) {
      Mapping& one = layer.add("attention.w_q", q, rotary ? "(h x 2) f -> f h 2 x" : "(h e) f -> f h e");
      one.range = rotary ? Range{1, n / 2, p / 2} : Range{1, 0, n};
      one.shape = {from, a.n_heads, e};
      one.place = rotary ? Range{2, 0, p} : Range{2, p, n};
    }
    const std::string down = "self_attn.kv_a_proj_with_mqa.weight", up = "self_attn.kv_b_proj.weight";
    layer.add("attention.w_kv_down", down, "y d -> d y").range = {0, 0, r};
    Mapping& key = layer.add("attention.w_k_rotary", down, "(z 2) d -> d 2 z");
    key.range = {0, r / 2, p / 2};
    key.shape = {d, p};
    layer.add("attention.kv_norm", "self_attn.kv_a_layernorm.weight", "r");
    layer.add("attention.w_k", up, "(h u) r -> r h u").range = {1, 0, n};
    layer.add("attention.w_v", up, "(h u) r -> r h u").range = {1, n, w};
    layer.add("attention.w_o", "self_attn.o_proj.weight", "d (h w) -> h w d");
  }
};

}  // namespace

const Architecture& deepseek_v2() {
  static const DeepseekV2 kDeepseekV2;
  return kDeepseekV2;
}

}  // namespace headroom::store
