// LLaMA and related architectures: RMS norms, gated MLPs, rotary positions, grouped key and value heads. Mistral adds a
// window; Qwen2 adds biases for queries, keys and values.
#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::store {
namespace {

// The values of keys that a config.json lacks. n_kv_heads 0: n_heads.
struct Defaults {
  std::int64_t vocabulary_size, d_hidden, n_kv_heads, context_length, window;
};

Defaults defaults_of(std::string_view kind) {
  return kind == "mistral" ? Defaults{32000, 14336, 8, 131072, 4096}
         : kind == "qwen2" ? Defaults{151936, 22016, 32, 32768, 0}
                           : Defaults{32000, 11008, 0, 2048, 0};
}

class Llama : public Architecture {
 public:
  Llama()
      : Architecture({.kinds = {"llama", "mistral", "qwen2"},
                      .prefix = "model.",
                      .embedding = "model.embed_tokens",
                      .layers = "model.layers.",
                      .last_norm = "model.norm",
                      .head = "lm_head",
                      .ignored = {".self_attn.rotary_emb.inv_freq"}}) {}

  config::ModelOptions read(const Settings& s) const override {
    const std::string kind = s.text("model_type", "llama");
    const Defaults usual = defaults_of(kind);
    config::ModelOptions o;
    o.vocabulary_size = s.size("vocab_size", usual.vocabulary_size);
    o.n_layers = s.size("num_hidden_layers", 32);
    o.d_model = s.size("hidden_size", 4096);
    o.context_length = s.size("max_position_embeddings", usual.context_length);
    o.norm = config::Norm::rms;
    o.norm_epsilon = s.epsilon("rms_norm_eps", 1e-6);
    o.tied_embeddings = s.flag("tie_word_embeddings", false);
    o.head_bias = false;
    config::AttentionOptions& a = o.attention;
    a.n_heads = s.size("num_attention_heads", 32);
    const bool usual_heads = s.lacks("num_key_value_heads") && usual.n_kv_heads > 0;
    a.n_kv_heads = s.size("num_key_value_heads", usual_heads ? usual.n_kv_heads : a.n_heads);
    a.d_head = s.has("head_dim") ? s.size("head_dim")
                                 : s.head_share({"num_attention_heads", a.n_heads}, {"hidden_size", o.d_model});
    a.bias = kind == "qwen2" || s.flag("attention_bias", false);
    read_rope(s, a, 1.0);
    read_windows(s, kind, usual.window, a);
    o.mlp.kind = config::MlpKind::gated;
    o.mlp.d_hidden = s.size("intermediate_size", usual.d_hidden);
    o.mlp.activation = s.activation("hidden_act", "silu");
    o.mlp.bias = s.flag("mlp_bias", false);
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    const bool window = a.window != 0;
    if (const std::string obstacle = dense_obstacle(o); !obstacle.empty()) {
      return obstacle;
    }
    return first_of(
        {{a.position != "rope", "attention.position"},
         {o.norm != config::Norm::rms, "norm"},
         {o.arrangement != config::Arrangement::sequential, "arrangement"},
         {o.mlp.kind != config::MlpKind::gated, "mlp.kind"},
         {a.of<config::PositionOptions>().rope_fraction != 1.0, "attention.rope_fraction"},
         {window && a.window_pattern != config::AttentionOptions().window_pattern, "attention.window_pattern"},
         {window && (a.bias || o.mlp.bias), "attention.window"}});
  }

  Json write(const config::ModelOptions& o, const std::string& imported_as) const override {
    const config::AttentionOptions& a = o.attention;
    const bool mistral = a.window > 0 || (imported_as == "mistral" && !a.bias && !o.mlp.bias);
    const bool qwen = !mistral && imported_as == "qwen2" && a.bias && !o.mlp.bias;
    Json json = {
        {"model_type", mistral ? "mistral"
                       : qwen  ? "qwen2"
                               : "llama"},
        {"architectures",
         {mistral ? "MistralForCausalLM"
          : qwen  ? "Qwen2ForCausalLM"
                  : "LlamaForCausalLM"}},
        {"num_hidden_layers", o.n_layers},
        {"hidden_size", o.d_model},
        {"num_attention_heads", a.n_heads},
        {"num_key_value_heads", a.kv_heads()},
        {"head_dim", a.d_head},
        {"max_position_embeddings", o.context_length},
        {"intermediate_size", o.mlp.d_hidden},
        {"hidden_act", activation_name(o.mlp.activation)},
        {"rms_norm_eps", o.norm_epsilon},
        {"rope_theta", a.of<config::PositionOptions>().rope_base},
        {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", a.of<config::PositionOptions>().rope_base}}}};
    if (mistral) {
      json["sliding_window"] = a.window > 0 ? Json(a.window) : Json();
    } else if (!qwen) {
      json["attention_bias"] = a.bias;
      json["mlp_bias"] = o.mlp.bias;
    }
    return json;
  }

 private:
  static void read_windows(const Settings& s, const std::string& kind, std::int64_t usual,
                           config::AttentionOptions& a) {
    s.require("use_sliding_window", !s.flag("use_sliding_window", false));
    if (kind == "mistral") {
      a.window = s.lacks("sliding_window") ? usual : s.has("sliding_window") ? s.size("sliding_window") : 0;
    } else if (kind == "llama") {
      s.require("sliding_window", false);
      s.require("layer_types", false);
    }
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t d = o.d_model, e = a.d_head, g = o.mlp.d_hidden;
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm");
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm");
    for (const char which : {'q', 'k', 'v'}) {
      const std::int64_t h = which == 'q' ? a.n_heads : a.kv_heads();
      const std::string name = fmt::format("{}self_attn.{}_proj", theirs, which);
      mappings.push_back({.parameter = fmt::format("{}attention.w_{}", ours, which),
                          .tensor = name + ".weight",
                          .stored = {h * e, d},
                          .view = {h, e, d},
                          .order = {2, 0, 1}});
      if (a.bias) {
        Mapping bias = same(fmt::format("{}attention.b_{}", ours, which), name + ".bias", {h * e});
        bias.view = {h, e};
        mappings.push_back(bias);
      }
    }
    mappings.push_back({.parameter = ours + "attention.w_o",
                        .tensor = theirs + "self_attn.o_proj.weight",
                        .stored = {d, a.n_heads * e},
                        .view = {d, a.n_heads, e},
                        .order = {1, 2, 0}});
    if (a.bias) {
      mappings.push_back(same(ours + "attention.b_o", theirs + "self_attn.o_proj.bias", {d}));
      mappings.back().optional = true;
    }
    for (const char* which : {"gate", "up", "down"}) {
      const bool down = which == std::string_view("down");
      map_linear(mappings, {ours + "ffn.", fmt::format("_{}", which)},
                 {fmt::format("{}mlp.{}_proj", theirs, which), down ? g : d, down ? d : g, o.mlp.bias, Stored::out_in});
    }
  }
};

}  // namespace

const Architecture& llama() {
  static const Llama kLlama;
  return kLlama;
}

}  // namespace headroom::store
