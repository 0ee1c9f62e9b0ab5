// GPT-2: learned positions, layer norms in front, one product for queries, keys and values; matrices stored [in, out].
#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::store {
namespace {

class Gpt2 : public Architecture {
 public:
  std::span<const std::string_view> kinds() const override { return kKinds; }
  std::string_view prefix() const override { return "transformer."; }
  std::span<const std::string_view> ignored() const override { return kIgnored; }

  config::ModelOptions read(const Settings& s) const override {
    s.require("scale_attn_weights", s.flag("scale_attn_weights", true));
    s.require("scale_attn_by_inverse_layer_idx", !s.flag("scale_attn_by_inverse_layer_idx", false));
    s.require("add_cross_attention", !s.flag("add_cross_attention", false));
    config::ModelOptions o;
    o.vocabulary_size = s.size("vocab_size", 50257);
    o.n_layers = s.size("n_layer", 12);
    o.d_model = s.size("n_embd", 768);
    o.context_length = s.size("n_positions", 1024);
    o.norm = config::Norm::layer;
    o.norm_epsilon = s.epsilon("layer_norm_epsilon", 1e-5);
    o.tied_embeddings = s.flag("tie_word_embeddings", true);
    o.head_bias = false;
    o.attention.n_heads = s.size("n_head", 12);
    o.attention.d_head = s.head_share({"n_head", o.attention.n_heads}, {"n_embd", o.d_model});
    o.attention.bias = true;
    o.attention.position = "learned";
    o.mlp.kind = config::MlpKind::dense;
    o.mlp.d_hidden = s.size("n_inner", 4 * o.d_model);
    o.mlp.activation = s.activation("activation_function", "gelu_new");
    o.mlp.bias = true;
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    return first_of({{a.position.name() != "learned", "attention.position"},
                     {o.norm != config::Norm::layer, "norm"},
                     {o.arrangement != config::Arrangement::sequential, "arrangement"},
                     {o.mlp.kind != config::MlpKind::dense, "mlp.kind"},
                     {a.kv_heads() != a.n_heads, "attention.n_kv_heads"},
                     {a.window != 0, "attention.window"},
                     {a.n_heads * a.d_head != o.d_model, "attention.d_head"}});
  }

  Json write(const config::ModelOptions& o) const override {
    return {{"model_type", "gpt2"},
            {"architectures", {"GPT2LMHeadModel"}},
            {"n_layer", o.n_layers},
            {"n_embd", o.d_model},
            {"n_head", o.attention.n_heads},
            {"n_positions", o.context_length},
            {"n_inner", o.mlp.d_hidden},
            {"activation_function", activation_name(o.mlp.activation)},
            {"layer_norm_epsilon", o.norm_epsilon},
            {"resid_pdrop", o.dropout},
            {"embd_pdrop", o.dropout},
            {"attn_pdrop", 0.0}};
  }

 private:
  Outside outside() const override {
    return {.embedding = "transformer.wte",
            .layers = "transformer.h.",
            .last_norm = "transformer.ln_f",
            .head = "lm_head",
            .positions = "transformer.wpe"};
  }

  void link_layer(std::vector<Link>& links, const config::ModelOptions& o, const std::string& ours,
                  const std::string& theirs) const override {
    const std::int64_t d = o.d_model, h = o.attention.n_heads, e = o.attention.d_head, g = o.mlp.d_hidden;
    link_norm(links, o, ours + "norm_1", theirs + "ln_1");
    link_norm(links, o, ours + "norm_2", theirs + "ln_2");
    for (std::int64_t i = 0; i < 3; ++i) {
      const char which = "qkv"[i];
      links.push_back({.parameter = fmt::format("{}attention.w_{}", ours, which),
                       .tensor = theirs + "attn.c_attn.weight",
                       .stored = {d, 3 * d},
                       .view = {d, 3, h, e},
                       .part = {{1, i}},
                       .order = {}});
      links.push_back({.parameter = fmt::format("{}attention.b_{}", ours, which),
                       .tensor = theirs + "attn.c_attn.bias",
                       .stored = {3 * d},
                       .view = {3, h, e},
                       .part = {{0, i}},
                       .order = {}});
    }
    Link output = same(ours + "attention.w_o", theirs + "attn.c_proj.weight", {d, d});
    output.view = {h, e, d};
    links.push_back(output);
    links.push_back(same(ours + "attention.b_o", theirs + "attn.c_proj.bias", {d}));
    links.push_back(same(ours + "ffn.w_up", theirs + "mlp.c_fc.weight", {d, g}));
    links.push_back(same(ours + "ffn.b_up", theirs + "mlp.c_fc.bias", {g}));
    links.push_back(same(ours + "ffn.w_down", theirs + "mlp.c_proj.weight", {g, d}));
    links.push_back(same(ours + "ffn.b_down", theirs + "mlp.c_proj.bias", {d}));
  }

  static constexpr std::string_view kKinds[] = {"gpt2"};
  static constexpr std::string_view kIgnored[] = {".attn.bias", ".attn.masked_bias"};  // masks
};

}  // namespace

const Architecture& gpt2() {
  static const Gpt2 kGpt2;
  return kGpt2;
}

}  // namespace headroom::store
