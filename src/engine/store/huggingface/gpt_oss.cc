// gpt-oss: RMS norms, grouped heads with biases and a sink each, windows in every other layer, experts with biases and
// clamped gates, routed by a softmax over the routed scores.
#include <algorithm>

#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

constexpr std::int64_t kGptOssWindow = 128;  // if config.json lacks sliding_window

// The default if config.json lacks rope_parameters.
constexpr config::RopeScalingOptions kUsualScaling = {.rope_scaling = config::RopeScaling::yarn,
                                                      .rope_factor = 32.0,
                                                      .rope_original_length = 4096,
                                                      .rope_truncate = false};

class GptOss : public Architecture {
 public:
  GptOss() : Architecture({.kinds = {{"gpt_oss", -1}}, .aliases = {{"num_experts", "num_local_experts"}}}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    k.model_type("gpt_oss", "GptOssForCausalLM");
    describe_decoder(k, o,
                     {.vocabulary_size = 201088,
                      .n_layers = 36,
                      .d_model = 2880,
                      .context_length = 131072,
                      .norm_epsilon = 1e-5,
                      .n_heads = 64,
                      .n_kv_heads = 8,
                      .d_head = 64});
    config::AttentionOptions& a = o.attention;
    k.flag("attention_bias", a.bias, true);
    k.always(a.of<config::DotOptions>().sink, true);
    describe_rope(k, a, {.fraction = 1.0, .base = 150000.0});
    if (const Settings* const s = k.given()) {
      if (!s->has("rope_parameters") && !s->has("rope_scaling")) {
        static_cast<config::RopeScalingOptions&>(a.of<config::PositionOptions>()) = kUsualScaling;
      }
      const std::int64_t window = s->size_or_none("sliding_window", kGptOssWindow);
      set_windows(o, read_windows(*s, o.n_layers, window, [](std::int64_t layer) { return layer % 2 == 0; }));
    } else {
      const std::vector<std::int64_t> windows = windows_of(o);
      const std::int64_t window = std::ranges::max(windows);
      k.only_written({{"sliding_window", window > 0 ? window : kGptOssWindow},  // transformers needs a number
                      {"layer_types", layer_types(windows)}});
    }
    describe_mlp(k, o.mlp);
  }

  static void describe_mlp(Keys& k, config::MlpOptions& mlp) {
    k.only("swiglu_limit", config::kExpertLimit);
    k.only("swiglu_alpha", config::kExpertSlope);
    k.always(mlp.kind, config::MlpKind::experts);
    k.size("intermediate_size", mlp.d_hidden, 2880);
    k.size("num_local_experts", mlp.n_experts, 128);
    k.size("num_experts_per_tok", mlp.top_k, 4);
    k.always(mlp.expert_kind, config::ExpertKind::clamped);
    k.always(mlp.expert_bias, config::ExpertBias::all);
    k.always(mlp.gate, config::Gate::softmax_top_k);
    k.always(mlp.entropy_coefficient, 0.0);
  }

  void map_layer(MappingList& layer, const config::ModelOptions& /*o*/) const override {
    layer.norm("norm_1", "input_layernorm");
    layer.norm("norm_2", "post_attention_layernorm");
    layer.heads();
    layer.add("attention.sink", "self_attn.sinks", "h");
    layer.add("ffn.select", "mlp.router.weight", "n d -> d n");
    layer.add("ffn.b_select", "mlp.router.bias", "n");
    layer.add("ffn.w_gate", "mlp.experts.gate_up_proj", "n d (g 2:0)");  // alternating columns
    layer.add("ffn.w_up", "mlp.experts.gate_up_proj", "n d (g 2:1)");
    layer.add("ffn.b_gate", "mlp.experts.gate_up_proj_bias", "n (g 2:0)");
    layer.add("ffn.b_up", "mlp.experts.gate_up_proj_bias", "n (g 2:1)");
    layer.add("ffn.w_down", "mlp.experts.down_proj", "n g d");
    layer.add("ffn.b_down", "mlp.experts.down_proj_bias", "n d");
  }
};

}  // namespace

const Architecture& gpt_oss() {
  static const GptOss kGptOss;
  return kGptOss;
}

}  // namespace headroom::store
