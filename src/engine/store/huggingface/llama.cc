// LLaMA and related architectures: RMS norms, gated MLPs, rotary positions, grouped key and value heads. Mistral adds a
// window, of all layers or of those that layer_types names (Ministral); Qwen2 adds biases for queries, keys and values;
// Qwen3 adds norms of queries and keys, and windows in the last layers.
#include <algorithm>

#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/projection_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::store {
namespace {

// The values of keys that a config.json lacks. n_kv_heads 0: n_heads.
struct Defaults {
  std::int64_t vocabulary_size, d_hidden, n_kv_heads, context_length, window;
};

// transformers reads a mistral with layer_types as a ministral.
bool is_mistral(std::string_view kind) {
  return kind == "mistral" || kind == "ministral";
}

Defaults defaults_of(std::string_view kind) {
  return is_mistral(kind)                     ? Defaults{32000, 14336, 8, 131072, 4096}
         : kind == "qwen2" || kind == "qwen3" ? Defaults{151936, 22016, 32, 32768, 4096}
                                              : Defaults{32000, 11008, 0, 2048, 0};
}

class Llama : public Architecture {
 public:
  Llama()
      : Architecture({.kinds = {"llama", "mistral", "ministral", "qwen2", "qwen3"},
                      .ignored = {".self_attn.rotary_emb.inv_freq"}}) {}

  config::ModelOptions read(const Settings& s) const override {
    const std::string kind = s.text("model_type", "llama");
    const Defaults usual = defaults_of(kind);
    config::ModelOptions o = read_decoder(s, {.vocabulary_size = usual.vocabulary_size,
                                              .n_layers = 32,
                                              .d_model = 4096,
                                              .context_length = usual.context_length});
    config::AttentionOptions& a = o.attention;
    a.n_heads = s.size("num_attention_heads", 32);
    const bool usual_heads = s.lacks("num_key_value_heads") && usual.n_kv_heads > 0;
    a.n_kv_heads = s.size("num_key_value_heads", usual_heads ? usual.n_kv_heads : a.n_heads);
    check_groups(s, a);
    a.d_head = s.has("head_dim") ? s.size("head_dim")
               : kind == "qwen3" ? 128
                                 : s.quotient({"num_attention_heads", a.n_heads}, {"hidden_size", o.d_model});
    a.bias = kind == "qwen2" || s.flag("attention_bias", false);
    a.of<config::DenseOptions>().output_bias = kind != "qwen2";
    read_rope(s, a, {.fraction = 1.0});
    if (kind == "qwen3") {
      a.qk_norm = true;
      a.qk_norm_epsilon = o.norm_epsilon;
      read_last_windows(s, usual.window, o);
    } else {
      read_windows(s, kind, usual.window, o);
    }
    o.mlp.kind = config::MlpKind::gated;
    o.mlp.d_hidden = s.size("intermediate_size", usual.d_hidden);
    o.mlp.activation = s.activation("hidden_act", "silu");
    o.mlp.bias = s.flag("mlp_bias", false);
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    const bool window = largest_window(o) > 0;
    const std::string differs =
        first_difference(o, usual({{"model_type", a.qk_norm ? "qwen3" : "llama"}}),
                         {"norm_position", "output_norms", "scaled_embeddings", "attention.projection",
                          "attention.score", "attention.composition", "attention.position", "norm", "arrangement",
                          "mlp.kind", a.qk_norm ? "mlp.bias" : "", "attention.rope_fraction"});
    if (!differs.empty() || a.qk_norm) {
      const bool epsilon = differs.empty() && a.qk_norm_epsilon != o.norm_epsilon;
      return epsilon ? "attention.qk_norm_epsilon" : differs;
    }
    return first_of({{window && (a.bias || o.mlp.bias), "attention.window"}});
  }

  Json write(const config::ModelOptions& o, const std::string& imported_as) const override {
    const config::AttentionOptions& a = o.attention;
    const std::vector<std::int64_t> windows = windows_of(o);
    const std::int64_t window = std::ranges::max(windows);
    const bool alternating = std::ranges::count(windows, window) < std::ssize(windows);
    const bool mistral = !a.qk_norm && (window > 0 || (is_mistral(imported_as) && !a.bias && !o.mlp.bias));
    const bool qwen = is_qwen2(o) || (!mistral && imported_as == "qwen2" && a.bias && !o.mlp.bias);
    const auto [kind, name] = a.qk_norm                ? std::pair("qwen3", "Qwen3ForCausalLM")
                              : mistral && alternating ? std::pair("ministral", "MinistralForCausalLM")
                              : mistral                ? std::pair("mistral", "MistralForCausalLM")
                              : qwen                   ? std::pair("qwen2", "Qwen2ForCausalLM")
                                                       : std::pair("llama", "LlamaForCausalLM");
    Json json = write_decoder(o, kind, name);
    json.update({{"hidden_act", activation_name(o.mlp.activation)},
                 {"rope_theta", a.of<config::PositionOptions>().rope_base},
                 {"rope_parameters", rope_parameters(a.of<config::PositionOptions>())}});
    if (a.qk_norm) {
      json["attention_bias"] = a.bias;
      json["use_sliding_window"] = window > 0;
      json["sliding_window"] = window > 0 ? Json(window) : Json();
      json["layer_types"] = layer_types(windows);
    } else if (mistral) {
      json["sliding_window"] = window > 0 ? Json(window) : Json();
      if (alternating) {
        json["layer_types"] = layer_types(windows);
      }
    } else if (!qwen) {
      json["attention_bias"] = a.bias;
      json["mlp_bias"] = o.mlp.bias;
    }
    return json;
  }

 private:
  static std::int64_t largest_window(const config::ModelOptions& o) { return std::ranges::max(windows_of(o)); }

  static bool is_qwen2(const config::ModelOptions& o) {
    const config::AttentionOptions& a = o.attention;
    return a.bias && !a.projection->has_output_bias(a) && !a.qk_norm && !o.mlp.bias;
  }

  // qwen3: the first max_window_layers have no window, unless layer_types says otherwise.
  static void read_last_windows(const Settings& s, std::int64_t usual, config::ModelOptions& o) {
    const bool uses = s.flag("use_sliding_window", false);
    const std::int64_t window = uses ? s.size_or_none("sliding_window", usual) : 0;
    const double first = s.number("max_window_layers", 28.0);
    std::vector<std::int64_t> windows;
    for (std::int64_t layer = 0; layer < o.n_layers; ++layer) {
      windows.push_back(static_cast<double>(layer) >= first ? window : 0);
    }
    set_windows(o, read_layer_types(s, window, std::move(windows)));
  }

  static void read_windows(const Settings& s, const std::string& kind, std::int64_t usual, config::ModelOptions& o) {
    s.require("use_sliding_window", !s.flag("use_sliding_window", false));
    if (is_mistral(kind)) {
      const std::int64_t window = s.size_or_none("sliding_window", usual);
      set_windows(o, read_layer_types(s, window, std::vector(static_cast<std::size_t>(o.n_layers), window)));
    } else if (kind == "qwen2") {
      read_layer_types(s, 0, std::vector<std::int64_t>(static_cast<std::size_t>(o.n_layers), 0));
    } else {
      s.require("sliding_window", false);
      s.require("layer_types", false);
    }
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    const config::AttentionOptions& a = o.attention;
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm");
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm");
    map_heads(mappings, o, ours + "attention.", theirs + "self_attn.");
    if (a.bias && is_qwen2(o)) {
      mappings.pop_back();  // the bias of the output
    } else if (a.bias) {
      mappings.back().droppable = true;  // it is 0 in a qwen2 that an earlier version imported
    }
    if (a.qk_norm) {
      map_qk_norms(mappings, a.d_head, ours + "attention.", theirs + "self_attn.", 0.0);
    }
    map_gated_mlp(mappings, o.mlp, o.d_model, ours + "ffn.", theirs + "mlp.");
  }
};

}  // namespace

const Architecture& llama() {
  static const Llama kLlama;
  return kLlama;
}

}  // namespace headroom::store
