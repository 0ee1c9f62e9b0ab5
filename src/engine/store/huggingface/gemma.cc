// Gemma 3 (text): RMS norms with the gain 1 + weight before and after attention and MLP, norms of queries and keys,
// scaled and tied embeddings, windows with another rotary base in all layers but every sixth.
#include <algorithm>
#include <cmath>
#include <string_view>

#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::store {
namespace {

constexpr double kGain = 1.0;  // of a norm whose stored weight is 0

// Writes whole numbers as integers, which transformers requires.
Json whole_or(double number) {
  return number == std::floor(number) ? Json(static_cast<std::int64_t>(number)) : Json(number);
}

class Gemma3 : public Architecture {
 public:
  Gemma3() : Architecture({.kinds = {"gemma3_text"}, .norm_offset = kGain}) {}

  config::ModelOptions read(const Settings& s) const override {
    for (const char* key : {"final_logit_softcapping", "attn_logit_softcapping"}) {
      s.require(key, false);
    }
    s.require("use_bidirectional_attention", !s.flag("use_bidirectional_attention", false));
    config::ModelOptions o = read_decoder(s, {.vocabulary_size = 262208,
                                              .n_layers = 26,
                                              .d_model = 2304,
                                              .context_length = 131072,
                                              .tied_embeddings = true,
                                              .n_heads = 8,
                                              .n_kv_heads = 4,
                                              .d_head = 256});
    o.output_norms = o.scaled_embeddings = true;
    config::AttentionOptions& a = o.attention;
    a.bias = s.flag("attention_bias", false);
    a.qk_norm = true;
    a.qk_norm_epsilon = o.norm_epsilon;
    const double scale = s.number("query_pre_attn_scalar", 256.0);
    if (!(scale > 0.0)) {
      s.refuse("query_pre_attn_scalar", "must be above 0");
    }
    a.of<config::DotOptions>().scale_width = scale == static_cast<double>(a.d_head) ? 0.0 : scale;
    a.position = "rope";
    read_layers(s, o);
    o.mlp.kind = config::MlpKind::gated;
    o.mlp.d_hidden = s.size("intermediate_size", 9216);
    o.mlp.activation = s.activation("hidden_activation", "gelu_pytorch_tanh");
    o.mlp.bias = false;
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    return first_difference(
        o, usual(),
        {"attention.projection", "attention.score", "attention.composition", "output_norms", "scaled_embeddings",
         "attention.position", "attention.qk_norm", "norm", "arrangement", "mlp.kind", "mlp.bias"});
  }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::AttentionOptions& a = o.attention;
    const std::vector<std::int64_t> windows = windows_of(o);
    const std::int64_t window = *std::max_element(windows.begin(), windows.end());
    config::PositionOptions local, global;  // with the defaults for kinds of layers that the model lacks
    global.rope_base = 1000000.0;
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      (windows[static_cast<std::size_t>(layer)] > 0 ? local : global) =
          o.of_layer(layer).attention.of<config::PositionOptions>();
    }
    const double width = a.of<config::DotOptions>().scale_width;
    Json json = write_decoder(o, "gemma3_text", "Gemma3ForCausalLM");
    json.update({{"hidden_activation", activation_name(o.mlp.activation)},
                 {"attention_bias", a.bias},
                 {"query_pre_attn_scalar", whole_or(width > 0.0 ? width : static_cast<double>(a.d_head))},
                 {"sliding_window", window > 0 ? window : 4096},
                 {"layer_types", layer_types(windows)},
                 {"final_logit_softcapping", nullptr},
                 {"attn_logit_softcapping", nullptr},
                 {"rope_parameters",
                  {{kFullAttention, rope_parameters(global)}, {kSlidingAttention, rope_parameters(local)}}}});
    return json;
  }

 private:
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
    std::vector<std::int64_t> windows;
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      windows.push_back((layer + 1) % period == 0 ? 0 : window);
    }
    windows = read_layer_types(s, window, std::move(windows));
    const config::PositionOptions local = read_position(s, kSlidingAttention, "rope_local_base_freq", 10000.0);
    const config::PositionOptions global = read_position(s, kFullAttention, "rope_theta", 1000000.0);
    const bool alike = std::ranges::adjacent_find(windows, std::ranges::not_equal_to()) == windows.end();
    o.attention.window = *std::max_element(windows.begin(), windows.end());
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

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm", kGain);
    map_norm(mappings, o, ours + "norm_1_out", theirs + "post_attention_layernorm", kGain);
    map_norm(mappings, o, ours + "norm_2", theirs + "pre_feedforward_layernorm", kGain);
    map_norm(mappings, o, ours + "norm_2_out", theirs + "post_feedforward_layernorm", kGain);
    map_heads(mappings, o, ours + "attention.", theirs + "self_attn.");
    map_qk_norms(mappings, o.attention.d_head, ours + "attention.", theirs + "self_attn.", kGain);
    map_gated_mlp(mappings, o.mlp, o.d_model, ours + "ffn.", theirs + "mlp.");
  }
};

}  // namespace

const Architecture& gemma3() {
  static const Gemma3 kGemma3;
  return kGemma3;
}

}  // namespace headroom::store
