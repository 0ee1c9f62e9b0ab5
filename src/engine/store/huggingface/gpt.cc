// GPT-2: learned positions, layer norms before attention and MLP, one matrix for queries, keys and values; matrices
// stored [in, out]. GPT-NeoX (Pythia): layer norms, rotary positions of a part of the channels, attention and MLP in
// parallel or in sequence, one matrix for queries, keys and values, grouped by head.
#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

// Describes what both have in common. `heads` and `width`: keys of the number of heads and the width.
void describe_gpt(Keys& k, config::ModelOptions& o, const char* heads, const char* width) {
  k.always(o.norm, config::Norm::layer);
  k.always(o.head_bias, false);
  if (const Settings* const s = k.given()) {
    o.attention.d_head = s->quotient({heads, o.attention.n_heads}, {width, o.d_model});
  }
  k.always(o.mlp.kind, config::MlpKind::dense);
  k.always(o.mlp.bias, true);
}

class Gpt2 : public Architecture {
 public:
  Gpt2()
      : Architecture({.kinds = {{"gpt2", 50256}},
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

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    config::AttentionOptions& a = o.attention;
    k.model_type("gpt2", "GPT2LMHeadModel");
    k.only("scale_attn_weights", true);
    k.only("scale_attn_by_inverse_layer_idx", false);
    k.only("add_cross_attention", false);
    k.size("vocab_size", o.vocabulary_size, 50257);
    k.size("n_layer", o.n_layers, 12);
    k.size("n_embd", o.d_model, 768);
    k.size("n_positions", o.context_length, 1024);
    k.epsilon("layer_norm_epsilon", o.norm_epsilon, 1e-5);
    k.flag("tie_word_embeddings", o.tied_embeddings, true);
    k.size("n_head", a.n_heads, 12);
    k.size("n_inner", o.mlp.d_hidden, 4 * o.d_model);
    k.activation("activation_function", o.mlp.activation, "gelu_new");
    k.always(a.position, "learned");
    k.always(a.bias, true);
    describe_gpt(k, o, "n_head", "n_embd");
    k.only_written({{"resid_pdrop", o.dropout}, {"embd_pdrop", o.dropout}, {"attn_pdrop", 0.0}});
  }

  void map_layer(MappingList& layer, const config::ModelOptions& /*o*/) const override {
    layer.norm("norm_1", "ln_1");
    layer.norm("norm_2", "ln_2");
    for (std::int64_t i = 0; i < 3; ++i) {
      layer.linear(fmt::format("attention.{{}}_{}", "qkv"[i]), "attn.c_attn", fmt::format("d (3:{} h e)", i),
                   fmt::format("(3:{} h e)", i).c_str());
    }
    layer.linear("attention.{}_o", "attn.c_proj", "(h e) d", "d");
    layer.linear("ffn.{}_up", "mlp.c_fc", "d g", "g");
    layer.linear("ffn.{}_down", "mlp.c_proj", "g d", "d");
  }
};

class GptNeox : public Architecture {
 public:
  GptNeox()
      : Architecture({.kinds = {{"gpt_neox"}},
                      .prefix = "gpt_neox.",
                      .embedding = "gpt_neox.embed_in",
                      .layers = "gpt_neox.layers.",
                      .last_norm = "gpt_neox.final_layer_norm",
                      .head = "embed_out",
                      .other_head = "lm_head",  // transformers 5
                      .ignored = {".attention.bias", ".attention.masked_bias", ".attention.rotary_emb.inv_freq"}}) {
  }  // masks, angles

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    config::AttentionOptions& a = o.attention;
    k.model_type("gpt_neox", "GPTNeoXForCausalLM");
    k.size("vocab_size", o.vocabulary_size, 50432);
    k.size("num_hidden_layers", o.n_layers, 44);
    k.size("hidden_size", o.d_model, 6144);
    k.size("max_position_embeddings", o.context_length, 2048);
    k.epsilon("layer_norm_eps", o.norm_epsilon, 1e-5);
    k.flag("tie_word_embeddings", o.tied_embeddings, false);
    describe_parallel(k, o);
    k.size("num_attention_heads", a.n_heads, 64);
    k.flag("attention_bias", a.bias, true);
    describe_rope(k, a, {.fraction = 0.25});
    k.size("intermediate_size", o.mlp.d_hidden, 24576);
    k.activation("hidden_act", o.mlp.activation, "gelu");
    describe_gpt(k, o, "num_attention_heads", "hidden_size");
    if (const Settings* const s = k.given()) {
      s->require("head_dim", s->size("head_dim", a.d_head) == a.d_head);
    }
    k.only_written({{"rotary_pct", a.of<config::PositionOptions>().rope_fraction},
                    {"rotary_emb_base", a.of<config::PositionOptions>().rope_base},
                    {"hidden_dropout", o.dropout}});
  }

  void map_layer(MappingList& layer, const config::ModelOptions& o) const override {
    const bool bias = o.attention.bias;
    layer.norm("norm_1", "input_layernorm");
    layer.norm("norm_2", "post_attention_layernorm");
    for (std::int64_t i = 0; i < 3; ++i) {
      layer.linear(fmt::format("attention.{{}}_{}", "qkv"[i]), "attention.query_key_value",
                   fmt::format("(h 3:{} e) d -> d h e", i), bias ? fmt::format("(h 3:{} e)", i).c_str() : nullptr);
    }
    layer.linear("attention.{}_o", "attention.dense", "d (h e) -> h e d", bias ? "d" : nullptr);
    layer.linear("ffn.{}_up", "mlp.dense_h_to_4h", "g d -> d g", "g");
    layer.linear("ffn.{}_down", "mlp.dense_4h_to_h", "d g -> g d", "d");
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
