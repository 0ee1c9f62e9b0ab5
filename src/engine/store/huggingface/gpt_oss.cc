// gpt-oss: RMS norms, grouped heads with biases and a sink each, windows in every other layer, experts with biases and
// clamped gates, routed by a softmax over the routed scores.
#include <algorithm>

#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::store {
namespace {

constexpr std::int64_t kGptOssWindow = 128;  // of a config.json without sliding_window

// The default of a config.json without rope_parameters.
constexpr config::RopeScalingOptions kUsualScaling = {.rope_scaling = config::RopeScaling::yarn,
                                                      .rope_factor = 32.0,
                                                      .rope_original_length = 4096,
                                                      .rope_truncate = false};

class GptOss : public Architecture {
 public:
  GptOss() : Architecture({.kinds = {"gpt_oss"}, .aliases = {{"num_experts", "num_local_experts"}}}) {}

  config::ModelOptions read(const Settings& s) const override {
    config::ModelOptions o = read_decoder(s, {.vocabulary_size = 201088,
                                              .n_layers = 36,
                                              .d_model = 2880,
                                              .context_length = 131072,
                                              .norm_epsilon = 1e-5,
                                              .n_heads = 64,
                                              .n_kv_heads = 8,
                                              .d_head = 64});
    config::AttentionOptions& a = o.attention;
    a.bias = s.flag("attention_bias", true);
    a.of<config::DotOptions>().sink = true;
    read_rope(s, a, {.fraction = 1.0, .base = 150000.0});
    if (!s.has("rope_parameters") && !s.has("rope_scaling")) {
      static_cast<config::RopeScalingOptions&>(a.of<config::PositionOptions>()) = kUsualScaling;
    }
    const std::int64_t window = s.size_or_none("sliding_window", kGptOssWindow);
    std::vector<std::int64_t> windows;
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      windows.push_back(layer % 2 == 0 ? window : 0);
    }
    set_windows(o, read_layer_types(s, window, std::move(windows)));
    read_mlp(s, o.mlp);
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    return first_difference(
        o, usual(),
        {"attention.projection", "attention.score", "attention.composition", "attention.sink", "output_norms",
         "scaled_embeddings", "attention.position", "attention.qk_norm", "norm", "arrangement", "mlp.kind",
         "mlp.expert_kind", "mlp.expert_bias", "mlp.gate", "mlp.gate_scale", "mlp.d_shared"});
  }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::AttentionOptions& a = o.attention;
    const std::vector<std::int64_t> windows = windows_of(o);
    const std::int64_t window = *std::max_element(windows.begin(), windows.end());
    Json json = write_decoder(o, "gpt_oss", "GptOssForCausalLM");
    json.update({{"attention_bias", a.bias},
                 {"num_local_experts", o.mlp.n_experts},
                 {"num_experts_per_tok", o.mlp.top_k},
                 {"swiglu_limit", config::kExpertLimit},
                 {"swiglu_alpha", config::kExpertSlope},
                 {"sliding_window", window > 0 ? window : kGptOssWindow},  // transformers needs a number
                 {"layer_types", layer_types(windows)},
                 {"rope_parameters", rope_parameters(a.of<config::PositionOptions>())}});
    return json;
  }

 private:
  static void read_mlp(const Settings& s, config::MlpOptions& mlp) {
    s.require("swiglu_limit", s.number("swiglu_limit", config::kExpertLimit) == config::kExpertLimit);
    s.require("swiglu_alpha", s.number("swiglu_alpha", config::kExpertSlope) == config::kExpertSlope);
    mlp.kind = config::MlpKind::experts;
    mlp.d_hidden = s.size("intermediate_size", 2880);
    mlp.n_experts = s.size("num_local_experts", 128);
    mlp.top_k = s.size("num_experts_per_tok", 4);
    mlp.expert_kind = config::ExpertKind::clamped;
    mlp.expert_bias = config::ExpertBias::all;
    mlp.gate = config::Gate::softmax_top_k;
    mlp.entropy_coefficient = 0.0;
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    const std::int64_t d = o.d_model, g = o.mlp.d_hidden, n = o.mlp.n_experts;
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm");
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm");
    map_heads(mappings, o, ours + "attention.", theirs + "self_attn.");
    mappings.push_back(same(ours + "attention.sink", theirs + "self_attn.sinks", {o.attention.n_heads}));
    mappings.push_back(transposed(ours + "ffn.select", theirs + "mlp.router.weight", d, n));
    mappings.push_back(same(ours + "ffn.b_select", theirs + "mlp.router.bias", {n}));
    const std::string experts = theirs + "mlp.experts.";
    for (const auto& [which, i] : {std::pair("gate", 0), std::pair("up", 1)}) {  // alternating columns
      mappings.push_back({.parameter = fmt::format("{}ffn.w_{}", ours, which),
                          .tensor = experts + "gate_up_proj",
                          .stored = {n, d, 2 * g},
                          .view = {n, d, g, 2},
                          .part = {{3, i}}});
      mappings.push_back({.parameter = fmt::format("{}ffn.b_{}", ours, which),
                          .tensor = experts + "gate_up_proj_bias",
                          .stored = {n, 2 * g},
                          .view = {n, g, 2},
                          .part = {{2, i}}});
    }
    mappings.push_back(same(ours + "ffn.w_down", experts + "down_proj", {n, g, d}));
    mappings.push_back(same(ours + "ffn.b_down", experts + "down_proj_bias", {n, d}));
  }
};

}  // namespace

const Architecture& gpt_oss() {
  static const GptOss kGptOss;
  return kGptOss;
}

}  // namespace headroom::store
