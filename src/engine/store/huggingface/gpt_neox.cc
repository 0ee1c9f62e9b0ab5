// GPT-NeoX, as Pythia has it: layer norms, rotary positions of a part of the channels, attention and MLP side by side
// or one after the other, one product for queries, keys and values with each head's three together.
#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/core/error.h"

namespace headroom::store {
namespace {

class GptNeox : public Architecture {
 public:
  std::span<const std::string_view> kinds() const override { return kKinds; }
  std::string_view prefix() const override { return "gpt_neox."; }
  std::span<const std::string_view> ignored() const override { return kIgnored; }

  config::ModelOptions read(const Settings& s) const override {
    config::ModelOptions o;
    o.vocabulary_size = s.size("vocab_size", 50432);
    o.n_layers = s.size("num_hidden_layers", 44);
    o.d_model = s.size("hidden_size", 6144);
    o.context_length = s.size("max_position_embeddings", 2048);
    o.arrangement =
        s.flag("use_parallel_residual", true) ? config::Arrangement::parallel : config::Arrangement::sequential;
    o.norm = config::Norm::layer;
    o.norm_epsilon = s.epsilon("layer_norm_eps", 1e-5);
    o.tied_embeddings = s.flag("tie_word_embeddings", false);
    o.head_bias = false;
    o.attention.n_heads = s.size("num_attention_heads", 64);
    o.attention.d_head = s.head_share({"num_attention_heads", o.attention.n_heads}, {"hidden_size", o.d_model});
    o.attention.bias = s.flag("attention_bias", true);
    read_rope(s, o.attention, 0.25);
    o.mlp.kind = config::MlpKind::dense;
    o.mlp.d_hidden = s.size("intermediate_size", 24576);
    o.mlp.activation = s.activation("hidden_act", "gelu");
    o.mlp.bias = true;
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    return first_of({{a.position.name() != "rope", "attention.position"},
                     {o.norm != config::Norm::layer, "norm"},
                     {o.mlp.kind != config::MlpKind::dense, "mlp.kind"},
                     {a.kv_heads() != a.n_heads, "attention.n_kv_heads"},
                     {a.window != 0, "attention.window"},
                     {a.n_heads * a.d_head != o.d_model, "attention.d_head"}});
  }

  Json write(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    return {{"model_type", "gpt_neox"},
            {"architectures", {"GPTNeoXForCausalLM"}},
            {"num_hidden_layers", o.n_layers},
            {"hidden_size", o.d_model},
            {"num_attention_heads", a.n_heads},
            {"max_position_embeddings", o.context_length},
            {"intermediate_size", o.mlp.d_hidden},
            {"hidden_act", activation_name(o.mlp.activation)},
            {"layer_norm_eps", o.norm_epsilon},
            {"use_parallel_residual", o.arrangement == config::Arrangement::parallel},
            {"attention_bias", a.bias},
            {"rotary_pct", a.rope_fraction},
            {"rotary_emb_base", a.rope_base},
            {"rope_parameters",
             {{"rope_type", "default"}, {"rope_theta", a.rope_base}, {"partial_rotary_factor", a.rope_fraction}}},
            {"hidden_dropout", o.dropout}};
  }

 private:
  Outside outside() const override {
    return {.embedding = "gpt_neox.embed_in",
            .layers = "gpt_neox.layers.",
            .last_norm = "gpt_neox.final_layer_norm",
            .head = "embed_out"};
  }

  void link_layer(std::vector<Link>& links, const config::ModelOptions& o, const std::string& ours,
                  const std::string& theirs) const override {
    const std::int64_t d = o.d_model, h = o.attention.n_heads, e = o.attention.d_head, g = o.mlp.d_hidden;
    link_norm(links, o, ours + "norm_1", theirs + "input_layernorm");
    link_norm(links, o, ours + "norm_2", theirs + "post_attention_layernorm");
    for (std::int64_t i = 0; i < 3; ++i) {
      const char which = "qkv"[i];
      links.push_back({.parameter = fmt::format("{}attention.w_{}", ours, which),
                       .tensor = theirs + "attention.query_key_value.weight",
                       .stored = {3 * d, d},
                       .view = {h, 3, e, d},
                       .part = {{1, i}},
                       .order = {2, 0, 1}});
      if (o.attention.bias) {
        links.push_back({.parameter = fmt::format("{}attention.b_{}", ours, which),
                         .tensor = theirs + "attention.query_key_value.bias",
                         .stored = {3 * d},
                         .view = {h, 3, e},
                         .part = {{1, i}},
                         .order = {}});
      }
    }
    Link output = same(ours + "attention.w_o", theirs + "attention.dense.weight", {d, d});
    output.view = {d, h, e};
    output.order = {1, 2, 0};
    links.push_back(output);
    if (o.attention.bias) {
      links.push_back(same(ours + "attention.b_o", theirs + "attention.dense.bias", {d}));
    }
    links.push_back(transposed(ours + "ffn.w_up", theirs + "mlp.dense_h_to_4h.weight", d, g));
    links.push_back(same(ours + "ffn.b_up", theirs + "mlp.dense_h_to_4h.bias", {g}));
    links.push_back(transposed(ours + "ffn.w_down", theirs + "mlp.dense_4h_to_h.weight", g, d));
    links.push_back(same(ours + "ffn.b_down", theirs + "mlp.dense_4h_to_h.bias", {d}));
  }

  static constexpr std::string_view kKinds[] = {"gpt_neox"};
  static constexpr std::string_view kIgnored[] = {".attention.bias", ".attention.masked_bias",
                                                  ".attention.rotary_emb.inv_freq"};  // masks, angles
};

}  // namespace

const Architecture& gpt_neox() {
  static const GptNeox kGptNeox;
  return kGptNeox;
}

}  // namespace headroom::store
