// GPT-2: learned positions, layer norms before attention and MLP, one matrix for queries, keys and values; matrices
// stored [in, out]. GPT-NeoX (Pythia): layer norms, rotary positions of a part of the channels, attention and MLP in
// parallel or in sequence, one matrix for queries, keys and values, grouped by head.
#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::store {
namespace {

std::string gpt_obstacle(const config::ModelOptions& o, const config::ModelOptions& usual) {
  const config::AttentionOptions& a = o.attention;
  const std::string differs =
      first_difference(o, usual,
                       {"norm_position", "output_norms", "scaled_embeddings", "attention.projection", "attention.score",
                        "attention.composition", "attention.qk_norm", "attention.position", "norm",
                        usual.attention.position == "learned" ? "arrangement" : "", "mlp.kind"});
  return !differs.empty() ? differs
                          : first_of({{a.kv_heads() != a.n_heads, "attention.n_kv_heads"},
                                      {a.window != 0, "attention.window"},
                                      {a.n_heads * a.d_head != o.d_model, "attention.d_head"}});
}

// The tensor that holds the queries, keys and values of all heads: its shape, its view with an axis of size 3, that
// axis, and the order of the other axes (empty: as viewed).
struct Joint {
  std::string tensor;
  std::vector<std::int64_t> stored, view;
  std::int64_t axis;
  std::vector<std::int64_t> order = {};
};

// Maps the parameters `name`q, `name`k and `name`v.
void map_joint(std::vector<Mapping>& mappings, const std::string& name, const Joint& joint) {
  for (std::int64_t i = 0; i < 3; ++i) {
    mappings.push_back({.parameter = name + "qkv"[i],
                        .tensor = joint.tensor,
                        .stored = joint.stored,
                        .view = joint.view,
                        .part = {{joint.axis, i}},
                        .order = joint.order});
  }
}

class Gpt2 : public Architecture {
 public:
  Gpt2()
      : Architecture({.kinds = {"gpt2"},
                      .prefix = "transformer.",
                      .embedding = "transformer.wte",
                      .layers = "transformer.h.",
                      .last_norm = "transformer.ln_f",
                      .head = "lm_head",
                      .positions = "transformer.wpe",
                      .ignored = {".attn.bias", ".attn.masked_bias"},  // masks
                      .aliases = {{"hidden_size", "n_embd"},
                                  {"num_hidden_layers", "n_layer"},
                                  {"num_attention_heads", "n_head"},
                                  {"max_position_embeddings", "n_positions"}}}) {}

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
    o.attention.d_head = s.quotient({"n_head", o.attention.n_heads}, {"n_embd", o.d_model});
    o.attention.bias = true;
    o.attention.position = "learned";
    o.mlp.kind = config::MlpKind::dense;
    o.mlp.d_hidden = s.size("n_inner", 4 * o.d_model);
    o.mlp.activation = s.activation("activation_function", "gelu_new");
    o.mlp.bias = true;
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override { return gpt_obstacle(o, usual()); }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
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
  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    const std::int64_t d = o.d_model, h = o.attention.n_heads, e = o.attention.d_head, g = o.mlp.d_hidden;
    map_norm(mappings, o, ours + "norm_1", theirs + "ln_1");
    map_norm(mappings, o, ours + "norm_2", theirs + "ln_2");
    map_joint(mappings, ours + "attention.w_", {theirs + "attn.c_attn.weight", {d, 3 * d}, {d, 3, h, e}, 1});
    map_joint(mappings, ours + "attention.b_", {theirs + "attn.c_attn.bias", {3 * d}, {3, h, e}, 0});
    Mapping output = same(ours + "attention.w_o", theirs + "attn.c_proj.weight", {d, d});
    output.view = {h, e, d};
    mappings.push_back(output);
    mappings.push_back(same(ours + "attention.b_o", theirs + "attn.c_proj.bias", {d}));
    map_linear(mappings, {ours + "ffn.", "_up"}, {theirs + "mlp.c_fc", d, g, true, Stored::in_out});
    map_linear(mappings, {ours + "ffn.", "_down"}, {theirs + "mlp.c_proj", g, d, true, Stored::in_out});
  }
};

class GptNeox : public Architecture {
 public:
  GptNeox()
      : Architecture({.kinds = {"gpt_neox"},
                      .prefix = "gpt_neox.",
                      .embedding = "gpt_neox.embed_in",
                      .layers = "gpt_neox.layers.",
                      .last_norm = "gpt_neox.final_layer_norm",
                      .head = "embed_out",
                      .other_head = "lm_head",  // transformers 5
                      .ignored = {".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"}}) {
  }  // masks, angles

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
    o.attention.d_head = s.quotient({"num_attention_heads", o.attention.n_heads}, {"hidden_size", o.d_model});
    s.require("head_dim", s.size("head_dim", o.attention.d_head) == o.attention.d_head);
    o.attention.bias = s.flag("attention_bias", true);
    read_rope(s, o.attention, {.fraction = 0.25});
    o.mlp.kind = config::MlpKind::dense;
    o.mlp.d_hidden = s.size("intermediate_size", 24576);
    o.mlp.activation = s.activation("hidden_act", "gelu");
    o.mlp.bias = true;
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override { return gpt_obstacle(o, usual()); }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::AttentionOptions& a = o.attention;
    const auto& position = a.of<config::PositionOptions>();
    Json rope = rope_parameters(position);
    rope["partial_rotary_factor"] = position.rope_fraction;
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
            {"rotary_pct", position.rope_fraction},
            {"rotary_emb_base", position.rope_base},
            {"rope_parameters", rope},
            {"hidden_dropout", o.dropout}};
  }

 private:
  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    const std::int64_t d = o.d_model, h = o.attention.n_heads, e = o.attention.d_head, g = o.mlp.d_hidden;
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm");
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm");
    const std::string joint = theirs + "attention.query_key_value.";
    map_joint(mappings, ours + "attention.w_", {joint + "weight", {3 * d, d}, {h, 3, e, d}, 1, {2, 0, 1}});
    if (o.attention.bias) {
      map_joint(mappings, ours + "attention.b_", {joint + "bias", {3 * d}, {h, 3, e}, 1});
    }
    map_output(mappings, d, h, e, ours + "attention.", theirs + "attention.dense.weight");
    if (o.attention.bias) {
      mappings.push_back(same(ours + "attention.b_o", theirs + "attention.dense.bias", {d}));
    }
    map_linear(mappings, {ours + "ffn.", "_up"}, {theirs + "mlp.dense_h_to_4h", d, g, true, Stored::out_in});
    map_linear(mappings, {ours + "ffn.", "_down"}, {theirs + "mlp.dense_4h_to_h", g, d, true, Stored::out_in});
  }
};

}  // namespace

const Architecture& gpt2() {
  static const Gpt2 kGpt2;
  return kGpt2;
}

const Architecture& gpt_neox() {
  static const GptNeox kGptNeox;
  return kGptNeox;
}

}  // namespace headroom::store
