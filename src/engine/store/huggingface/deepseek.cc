// DeepSeek-V2: latent attention, gated MLPs in the first layers, then routed gated experts and shared ones.
#include <cmath>
#include <tuple>

#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/projection_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"

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
      : Architecture({.kinds = {"deepseek_v2"},
                      .ignored = {".self_attn.rotary_emb.inv_freq"},
                      .aliases = {{"num_experts", "n_routed_experts"}}}) {}

  config::ModelOptions read(const Settings& s) const override {
    config::ModelOptions o =
        read_decoder(s, {.vocabulary_size = 102400, .n_layers = 32, .d_model = 4096, .context_length = 2048});
    read_attention(s, o.attention);
    read_mlps(s, o);
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    const config::ModelOptions last = o.of_layer(o.n_layers - 1);
    bool pattern = last.mlp.kind == config::MlpKind::experts;
    for (std::int64_t layer = n_dense(o); layer < o.n_layers; ++layer) {
      pattern = pattern && o.of_layer(layer).mlp.kind == config::MlpKind::experts;
    }
    const std::string differs =
        first_difference(last, usual({{"num_experts_per_tok", 1U}}),
                         {"attention.projection", "attention.score", "attention.composition", "output_norms",
                          "scaled_embeddings", "attention.position", "attention.qk_norm_epsilon", "norm", "arrangement",
                          "mlp.kind", "mlp.expert_kind", "mlp.expert_bias", "mlp.gate", "mlp.shared_gate"});
    return !differs.empty()
               ? differs
               : first_of({{(a.d_head - a.projection->rotary_channels(a)) % 2 != 0, "attention.d_head"},
                           {a.of<config::LatentOptions>().kv_rank % 2 != 0, "attention.kv_rank"},
                           {!pattern, "mlp.kind"},
                           {last.mlp.d_shared == 0 || last.mlp.d_shared % last.mlp.d_hidden != 0, "mlp.d_shared"}});
  }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::AttentionOptions& a = o.attention;
    const auto& latent = a.of<config::LatentOptions>();
    const std::int64_t rotary = a.projection->rotary_channels(a), dense = n_dense(o);
    const config::MlpOptions experts = o.of_layer(o.n_layers - 1).mlp;
    return {{"model_type", "deepseek_v2"},
            {"architectures", {"DeepseekV2ForCausalLM"}},
            {"num_hidden_layers", o.n_layers},
            {"hidden_size", o.d_model},
            {"num_attention_heads", a.n_heads},
            {"num_key_value_heads", a.n_heads},
            {"max_position_embeddings", o.context_length},
            {"rms_norm_eps", o.norm_epsilon},
            {"kv_lora_rank", latent.kv_rank},
            {"q_lora_rank", latent.q_rank > 0 ? Json(latent.q_rank) : Json()},
            {"qk_nope_head_dim", a.d_head - rotary},
            {"qk_rope_head_dim", rotary},
            {"v_head_dim", a.value_width()},
            {"attention_bias", false},
            {"first_k_dense_replace", dense},
            {"intermediate_size", dense > 0 ? o.of_layer(0).mlp.d_hidden : experts.d_hidden},
            {"mlp_bias", dense > 0 && o.of_layer(0).mlp.bias},
            {"hidden_act", activation_name(experts.activation)},
            {"moe_intermediate_size", experts.d_hidden},
            {"n_routed_experts", experts.n_experts},
            {"n_shared_experts", experts.d_shared / experts.d_hidden},
            {"num_experts_per_tok", experts.top_k},
            {"routed_scaling_factor", experts.gate_scale},
            {"topk_method", "greedy"},
            {"norm_topk_prob", false},
            {"rope_parameters", rope_with_scale(a)}};
  }

 private:
  static void read_attention(const Settings& s, config::AttentionOptions& a) {
    a.projection = "latent";
    a.n_heads = s.size("num_attention_heads", 32);
    s.require("num_key_value_heads", s.size("num_key_value_heads", a.n_heads) == a.n_heads);
    s.require("attention_bias", !s.flag("attention_bias", false));
    auto& latent = a.of<config::LatentOptions>();
    latent.kv_rank = s.size("kv_lora_rank", 512);
    latent.q_rank = s.size_or_none("q_lora_rank", 1536);
    latent.d_rotary = s.size("qk_rope_head_dim", 64);
    latent.d_value = s.size("v_head_dim", 128);
    const std::int64_t rest = s.size("qk_nope_head_dim", 128);
    a.d_head = latent.d_rotary + rest;
    a.qk_norm_epsilon = kLatentEpsilon;
    for (const auto& [key, size] : {std::pair("kv_lora_rank", latent.kv_rank), std::pair("qk_nope_head_dim", rest)}) {
      if (size % 2 != 0) {
        s.refuse(key, "must be even");
      }
    }
    read_rope(s, a, {.fraction = 1.0});
    read_scale(s, a);
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

  // Rounded so that an export and another import give the same number.
  static double rounded(double number) {
    constexpr double kDigits = 1e9;
    return std::round(number * kDigits) / kDigits;
  }

  static Json rope_with_scale(const config::AttentionOptions& a) {
    Json rope = rope_parameters(a.of<config::PositionOptions>());
    const double width = a.of<config::DotOptions>().scale_width;
    const double factor = a.of<config::PositionOptions>().rope_factor;
    if (width > 0.0 && factor > 1.0) {
      const double m = std::pow(static_cast<double>(a.d_head) / width, 0.25);
      rope["mscale_all_dim"] = (m - 1.0) / (0.1 * std::log(factor));
    }
    return rope;
  }

  static void read_mlps(const Settings& s, config::ModelOptions& o) {
    const std::string method = s.text("topk_method", "greedy");
    const bool all_groups = s.has("n_group") && s.number("n_group", 0.0) == s.number("topk_group", 0.0);
    s.require("topk_method", method == "greedy" || (method == "group_limited_greedy" && all_groups));
    s.require("norm_topk_prob", !s.flag("norm_topk_prob", false));
    s.require("scoring_func", s.text("scoring_func", "softmax") == "softmax");
    s.require("moe_layer_freq", s.number("moe_layer_freq", 1.0) == 1.0);
    s.require("mlp_bias", !s.flag("mlp_bias", false));
    config::MlpOptions& mlp = o.mlp;
    mlp.kind = config::MlpKind::experts;
    mlp.bias = false;
    mlp.activation = s.activation("hidden_act", "silu");
    mlp.expert_kind = config::ExpertKind::gated;
    mlp.gate = config::Gate::softmax;
    mlp.entropy_coefficient = 0.0;
    mlp.d_hidden = s.size("moe_intermediate_size", 1407);
    mlp.n_experts = s.size("n_routed_experts", 64);
    mlp.top_k = s.size("num_experts_per_tok");
    mlp.d_shared = mlp.d_hidden * s.size("n_shared_experts", 2);
    mlp.gate_scale = s.number("routed_scaling_factor", 1.0);
    const std::int64_t hidden = s.size("intermediate_size", 11008);
    const double first = s.number("first_k_dense_replace", 0.0);
    if (!(first >= 0.0 && first < static_cast<double>(o.n_layers) && first == std::floor(first))) {
      s.refuse("first_k_dense_replace", fmt::format("must be a whole number below num_hidden_layers = {}", o.n_layers));
    }
    if (first > 0.0) {
      const auto n = static_cast<std::int64_t>(first);
      o.layers = {
          {.repeat = n, .attention = {}, .mlp = {{"d_hidden", fmt::format("{}", hidden)}, {"kind", "\"gated\""}}},
          {.repeat = o.n_layers - n, .attention = {}, .mlp = {}}};
    }
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm");
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm");
    map_attention(mappings, o, ours + "attention.", theirs + "self_attn.");
    if (o.mlp.kind == config::MlpKind::gated) {
      map_gated_mlp(mappings, o.mlp, o.d_model, ours + "ffn.", theirs + "mlp.");
    } else {
      map_experts(mappings, o.mlp, o.d_model, ours + "ffn.", theirs + "mlp.");
      map_shared_expert(mappings, o.mlp, o.d_model, ours + "ffn.", theirs + "mlp.shared_experts.");
    }
  }

  // In the files, the unrotated channels of a head come first, and rotated pairs are neighbouring channels.
  static void map_attention(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                            const std::string& theirs) {
    const config::AttentionOptions& a = o.attention;
    const auto& latent = a.of<config::LatentOptions>();
    const std::int64_t d = o.d_model, h = a.n_heads, e = a.d_head, p = latent.d_rotary, n = e - p, w = a.value_width();
    const std::int64_t r = latent.kv_rank, from = latent.q_rank > 0 ? latent.q_rank : d;
    if (latent.q_rank > 0) {
      mappings.push_back(transposed(ours + "w_q_down", theirs + "q_a_proj.weight", d, from));
      mappings.push_back(same(ours + "q_down_norm", theirs + "q_a_layernorm.weight", {from}));
    }
    Mapping q{.parameter = ours + "w_q",
              .tensor = theirs + (latent.q_rank > 0 ? "q_b_proj.weight" : "q_proj.weight"),
              .stored = {h * e, from},
              .view = {h, e, from},
              .range = Range{1, 0, n},
              .order = {2, 0, 1},
              .shape = {from, h, e},
              .place = Range{2, p, n}};
    mappings.push_back(q);
    q.view = {h, e / 2, 2, from};
    q.range = {1, n / 2, p / 2};
    q.order = {3, 0, 2, 1};
    q.place = {2, 0, p};
    mappings.push_back(q);
    const std::string down = theirs + "kv_a_proj_with_mqa.weight", up = theirs + "kv_b_proj.weight";
    mappings.push_back({.parameter = ours + "w_kv_down",
                        .tensor = down,
                        .stored = {r + p, d},
                        .range = Range{0, 0, r},
                        .order = {1, 0}});
    mappings.push_back({.parameter = ours + "w_k_rotary",
                        .tensor = down,
                        .stored = {r + p, d},
                        .view = {(r + p) / 2, 2, d},
                        .range = Range{0, r / 2, p / 2},
                        .order = {2, 1, 0},
                        .shape = {d, p}});
    mappings.push_back(same(ours + "kv_norm", theirs + "kv_a_layernorm.weight", {r}));
    for (const auto& [name, begin, width] : {std::tuple("w_k", std::int64_t{0}, n), std::tuple("w_v", n, w)}) {
      mappings.push_back({.parameter = ours + name,
                          .tensor = up,
                          .stored = {h * (n + w), r},
                          .view = {h, n + w, r},
                          .range = Range{1, begin, width},
                          .order = {2, 0, 1}});
    }
    map_output(mappings, d, h, w, ours, theirs + "o_proj.weight");
  }
};

}  // namespace

const Architecture& deepseek_v2() {
  static const DeepseekV2 kDeepseekV2;
  return kDeepseekV2;
}

}  // namespace headroom::store
