// LLaMA and related architectures: RMS norms, gated MLPs, rotary positions, grouped key/value heads. Mistral adds a
// window, in all layers or in the layers that layer_types names (Ministral); Qwen2 adds biases for queries, keys and
// values; Qwen3 adds norms of queries and keys, and windows in the last layers.
#include <algorithm>

#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

// Values of keys that a config.json lacks. n_kv_heads 0: n_heads.
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
      : Architecture({.kinds = {{"llama"}, {"mistral"}, {"ministral"}, {"qwen2", -1}, {"qwen3", -1}},
                      .ignored = {".self_attn.rotary_emb.inv_freq"}}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& given_kind) const override {
    const std::string kind = k.given() != nullptr ? given_kind : kind_of(o, given_kind);
    const Defaults usual = defaults_of(kind);
    k.model_type(kind, class_of(kind));
    describe_decoder(k, o,
                     {.vocabulary_size = usual.vocabulary_size,
                      .n_layers = 32,
                      .d_model = 4096,
                      .context_length = usual.context_length});
    describe_heads(k, o, kind, usual);
    config::AttentionOptions& a = o.attention;
    describe_rope(k, a, {.fraction = 1.0});
    k.always(a.of<config::DenseOptions>().output_bias, kind != "qwen2");
    if (kind == "qwen2") {
      k.always(a.bias, true);
    } else if (k.given() != nullptr || !is_mistral(kind)) {
      k.flag("attention_bias", a.bias, false);
    }
    if (kind == "qwen3") {
      k.always(a.qk_norm, true);
      k.always(a.qk_norm_epsilon, o.norm_epsilon);
    }
    k.given() != nullptr ? read_windows_of(kind, *k.given(), usual.window, o) : write_windows(kind, o, k);
    k.always(o.mlp.kind, config::MlpKind::gated);
    k.size("intermediate_size", o.mlp.d_hidden, usual.d_hidden);
    k.activation("hidden_act", o.mlp.activation, "silu");
    if (k.given() != nullptr || kind == "llama") {
      k.flag("mlp_bias", o.mlp.bias, false);
    }
  }

  static void describe_heads(Keys& k, config::ModelOptions& o, const std::string& kind, const Defaults& usual) {
    config::AttentionOptions& a = o.attention;
    k.size("num_attention_heads", a.n_heads, 32);
    const Settings* const s = k.given();
    const bool usual_heads = s != nullptr && s->lacks("num_key_value_heads") && usual.n_kv_heads > 0;
    k.size("num_key_value_heads", a.n_kv_heads, usual_heads ? usual.n_kv_heads : a.n_heads);
    if (s != nullptr) {
      check_groups(*s, a);
    }
    if (s != nullptr && !s->has("head_dim") && kind != "qwen3") {
      a.d_head = s->quotient({"num_attention_heads", a.n_heads}, {"hidden_size", o.d_model});
    } else {
      k.size("head_dim", a.d_head, 128);
    }
  }

  // Returns the model_type to write.
  static std::string kind_of(const config::ModelOptions& o, const std::string& imported_as) {
    const config::AttentionOptions& a = o.attention;
    const std::vector<std::int64_t> windows = windows_of(o);
    const std::int64_t window = std::ranges::max(windows);
    if (a.qk_norm) {
      return "qwen3";
    }
    if (window > 0 || (is_mistral(imported_as) && !a.bias && !o.mlp.bias)) {
      return std::ranges::count(windows, window) < std::ssize(windows) ? "ministral" : "mistral";
    }
    return is_qwen2(o) || (imported_as == "qwen2" && a.bias && !o.mlp.bias) ? "qwen2" : "llama";
  }
  static const char* class_of(std::string_view kind) {
    return kind == "qwen3"       ? "Qwen3ForCausalLM"
           : kind == "ministral" ? "MinistralForCausalLM"
           : kind == "mistral"   ? "MistralForCausalLM"
           : kind == "qwen2"     ? "Qwen2ForCausalLM"
                                 : "LlamaForCausalLM";
  }
  static bool is_qwen2(const config::ModelOptions& o) {
    const config::AttentionOptions& a = o.attention;
    return a.bias && !a.projection->has_output_bias(a) && !a.qk_norm && !o.mlp.bias;
  }

  // qwen3: the first max_window_layers have no window, unless layer_types says otherwise.
  static void read_windows_of(const std::string& kind, const Settings& s, std::int64_t usual, config::ModelOptions& o) {
    const bool qwen3 = kind == "qwen3", uses = s.flag("use_sliding_window", false);
    s.require("use_sliding_window", qwen3 || !uses);
    if (kind == "llama") {
      s.require("sliding_window", false);
      s.require("layer_types", false);
      return;
    }
    const std::int64_t window = is_mistral(kind) || uses ? s.size_or_none("sliding_window", usual) : 0;
    const double first = qwen3 ? s.number("max_window_layers", 28.0) : 0.0;
    set_windows(o, read_windows(s, o.n_layers, window,
                                [first](std::int64_t layer) { return static_cast<double>(layer) >= first; }));
  }

  static void write_windows(const std::string& kind, const config::ModelOptions& o, Keys& k) {
    const std::vector<std::int64_t> windows = windows_of(o);
    const std::int64_t window = std::ranges::max(windows);
    if (kind == "qwen3" || is_mistral(kind)) {
      k.only_written({{"sliding_window", window > 0 ? Json(window) : Json()}});
    }
    if (kind == "qwen3" || kind == "ministral") {
      k.only_written({{"layer_types", layer_types(windows)}});
    }
    if (kind == "qwen3") {
      k.only_written({{"use_sliding_window", window > 0}});
    }
  }

  void map_layer(MappingList& layer, const config::ModelOptions& o) const override {
    layer.norm("norm_1", "input_layernorm");
    layer.norm("norm_2", "post_attention_layernorm");
    layer.heads(/*output_bias=*/!is_qwen2(o));
    layer.gated_mlp();
  }
};

}  // namespace

const Architecture& llama() {
  static const Llama kLlama;
  return kLlama;
}

}  // namespace headroom::store
