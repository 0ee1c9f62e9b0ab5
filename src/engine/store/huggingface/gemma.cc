// Gemma 3 (text): RMS norms with the gain 1 + weight before and after attention and MLP, norms of queries and keys,
// scaled and tied embeddings, windows with another rotary base in all layers but every sixth.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

constexpr double kGain = 1.0;  // of a norm whose stored weight is 0

// Writes whole numbers as integers, which transformers requires.
Json whole_or(double number) {
  return number == std::floor(number) ? Json(static_cast<std::int64_t>(number)) : Json(number);
}

class Gemma3 : public Architecture {
 public:
  Gemma3() : Architecture({.kinds = {{"gemma3_text", 1}}, .norm_offset = kGain}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    k.model_type("gemma3_text", "Gemma3ForCausalLM");
    k.only("final_logit_softcapping", nullptr);
    k.only("attn_logit_softcapping", nullptr);
    k.only("use_bidirectional_attention", false);
    describe_decoder(k, o,
                     {.vocabulary_size = 262208,
                      .n_layers = 26,
                      .d_model = 2304,
                      .context_length = 131072,
                      .tied_embeddings = true,
                      .n_heads = 8,
                      .n_kv_heads = 4,
                      .d_head = 256});
    config::AttentionOptions& a = o.attention;
    k.always(o.output_norms, true);
    k.always(o.scaled_embeddings, true);
    k.flag("attention_bias", a.bias, false);
    k.always(a.qk_norm, true);
    k.always(a.qk_norm_epsilon, o.norm_epsilon);
    double& width = a.of<config::DotOptions>().scale_width;
    if (const Settings* const s = k.given()) {
      const double scale = s->epsilon("query_pre_attn_scalar", 256.0);
      width = scale == static_cast<double>(a.d_head) ? 0.0 : scale;
    }
    k.only_written({{"query_pre_attn_scalar", whole_or(width > 0.0 ? width : static_cast<double>(a.d_head))}});
    k.always(a.position, "rope");
    k.given() != nullptr ? read_layers(*k.given(), o) : write_layers(o, k);
    k.always(o.mlp.kind, config::MlpKind::gated);
    k.size("intermediate_size", o.mlp.d_hidden, 9216);
    k.activation("hidden_activation", o.mlp.activation, "gelu_pytorch_tanh");
    k.always(o.mlp.bias, false);
  }

  static void write_layers(const config::ModelOptions& o, Keys& k) {
    const std::vector<std::int64_t> windows = windows_of(o);
    const std::int64_t window = std::ranges::max(windows);
    config::PositionOptions local, global;  // with the defaults for kinds of layers that the model lacks
    global.rope_base = 1000000.0;
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      (windows[static_cast<std::size_t>(layer)] > 0 ? local : global) =
          o.of_layer(layer).attention.of<config::PositionOptions>();
    }
    k.only_written({{"sliding_window", window > 0 ? window : 4096},
                    {"layer_types", layer_types(windows)},
                    {"rope_parameters",
                     {{kFullAttention, rope_parameters(global)}, {kSlidingAttention, rope_parameters(local)}}}});
  }

  // Reads the rotary positions of a kind of layers from rope_parameters or older places: `old_key` at the top level for
  // the base and, for layers without a window, rope_scaling for the base and the scaling.
  static config::PositionOptions read_position(const Settings& s, const char* layers, const char* old_key,
                                               double usual) {
    const Settings place = s.in("rope_parameters").in(layers);
    const Settings scaling = layers == std::string_view(kFullAttention) ? s.in("rope_scaling") : place;
    const bool is_default = place.text("rope_type", "default") == "default" && s.has("rope_scaling");
    config::PositionOptions position;
    static_cast<config::RopeScalingOptions&>(position) =
        read_rope_scaling(s, is_default ? scaling : scaling_place(place, scaling));
    const KeyPlace base = agreed({{place, "rope_theta"}, {scaling, "rope_theta"}, {s, old_key}});
    position.rope_base = base.settings.number(base.key, usual);
    if (!(position.rope_base > 1.0)) {
      base.settings.refuse(base.key, "must be above 1");
    }
    return position;
  }

  static void read_layers(const Settings& s, config::ModelOptions& o) {
    const std::int64_t window = s.size_or_none("sliding_window", 4096);
    const std::int64_t period = s.size("sliding_window_pattern", 6);
    const std::vector<std::int64_t> windows =
        read_windows(s, o.n_layers, window, [&](std::int64_t layer) { return (layer + 1) % period != 0; });
    const config::PositionOptions local = read_position(s, kSlidingAttention, "rope_local_base_freq", 10000.0);
    const config::PositionOptions global = read_position(s, kFullAttention, "rope_theta", 1000000.0);
    const bool alike = std::ranges::adjacent_find(windows, std::ranges::not_equal_to()) == windows.end();
    o.attention.window = *std::ranges::max_element(windows);
    o.attention.of<config::PositionOptions>() = o.attention.window > 0 ? local : global;
    if (alike) {
      return;
    }
    config::AttentionOptions full = o.attention;
    full.window = 0;
    full.of<config::PositionOptions>() = global;
    std::vector<config::LayerOptions> keys(windows.size());
    for (std::size_t layer = 0; layer < windows.size(); ++layer) {
      if (windows[layer] == 0) {
        keys[layer].attention = config::differing_keys(full, o.attention);
      }
    }
    set_layers(o, keys);
  }

  void map_layer(MappingList& layer, const config::ModelOptions& /*o*/) const override {
    layer.norm("norm_1", "input_layernorm", kGain);
    layer.norm("norm_1_out", "post_attention_layernorm", kGain);
    layer.norm("norm_2", "pre_feedforward_layernorm", kGain);
    layer.norm("norm_2_out", "post_feedforward_layernorm", kGain);
    layer.heads(/*output_bias=*/true, kGain);
    layer.gated_mlp();
  }
};

}  // namespace

const Architecture& gemma3() {
  static const Gemma3 kGemma3;
  return kGemma3;
}

}  // namespace headroom::store
