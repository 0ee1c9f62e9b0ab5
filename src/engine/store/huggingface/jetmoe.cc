// JetMoE: Mixture of Attention Heads whose experts are groups of query heads, and gated experts instead of an MLP. Both
// are routed by a softmax over the routed scores and have a single output bias.
#include "architecture.h"
#include "headroom/config/attention_part.h"
#include "headroom/config/part_options.h"

namespace headroom::store {
namespace {

constexpr double kLayerEpsilon = 1e-6;  // of the layers' norms; rms_norm_eps is the final norm's

class JetMoe : public Architecture {
 public:
  JetMoe() : Architecture({.kinds = {{"jetmoe"}}, .aliases = {{"head_dim", "kv_channels"}}}) {}

 private:
  void describe(Keys& k, config::ModelOptions& o, const std::string& /*kind*/) const override {
    k.model_type("jetmoe", "JetMoeForCausalLM");
    if (k.given() == nullptr) {
      o.norm_epsilon = o.last_norm_epsilon();
    }
    describe_decoder(k, o,
                     {.vocabulary_size = 32000,
                      .n_layers = 12,
                      .d_model = 2048,
                      .context_length = 4096,
                      .norm_epsilon = kLayerEpsilon,
                      .tied_embeddings = true});
    k.always(o.final_norm_epsilon, o.norm_epsilon == kLayerEpsilon ? 0.0 : o.norm_epsilon);
    k.always(o.norm_epsilon, kLayerEpsilon);
    config::MlpOptions& mlp = o.mlp;
    k.always(mlp.kind, config::MlpKind::experts);
    k.size("intermediate_size", mlp.d_hidden, 5632);
    k.activation("activation_function", mlp.activation, "silu");
    k.size("num_local_experts", mlp.n_experts, 8);
    k.size("num_experts_per_tok", mlp.top_k, 2);
    k.always(mlp.expert_kind, config::ExpertKind::gated);
    k.always(mlp.expert_bias, config::ExpertBias::output);
    k.always(mlp.gate, config::Gate::softmax_top_k);
    k.always(mlp.entropy_coefficient, 0.0);
    describe_attention(k, mlp, o.attention);
  }

  static void describe_attention(Keys& k, const config::MlpOptions& mlp, config::AttentionOptions& a) {
    k.always(a.projection, "routed_heads");
    k.size("num_key_value_heads", a.n_kv_heads, 16);
    k.always(a.n_heads, a.n_kv_heads * mlp.top_k);
    k.size("kv_channels", a.d_head, 128);
    if (const Settings* const s = k.given()) {
      s->require("num_attention_heads", s->size("num_attention_heads", a.n_heads) == a.n_heads);
    }
    auto& routing = a.of<config::RoutingOptions>();
    k.always(routing.n_experts, mlp.n_experts);
    k.always(routing.top_k, mlp.top_k);
    k.always(routing.gate, config::Gate::softmax_top_k);
    auto& heads = a.of<config::RoutedHeadOptions>();
    k.always(heads.output_bias, true);
    k.always(heads.switch_coefficient, 0.0);
    k.always(heads.z_coefficient, 0.0);
    describe_rope(k, a, {.fraction = 1.0});
  }

  void map_layer(MappingList& layer, const config::ModelOptions& o) const override {
    layer.norm("norm_1", "input_layernorm");
    layer.norm("norm_2", "post_attention_layernorm");
    // With a single key/value head, the parameters have no head axis.
    const bool one = o.attention.kv_heads() == 1;
    layer.add("attention.select", "self_attention.experts.router.layer.weight", "n d -> d n");
    layer.add("attention.w_q", "self_attention.experts.input_linear.weight",
              one ? "n (1:0 e) d -> n d e" : "n (k e) d -> n d k e");
    layer.add("attention.w_o", "self_attention.experts.output_linear.weight",
              one ? "n d (1:0 e) -> n e d" : "n d (k e) -> n k e d");
    layer.add("attention.b_out", "self_attention.experts.bias", "d");
    layer.add("attention.w_k", "self_attention.kv_proj.weight", one ? "(2:0 1:0 e) d -> d e" : "(2:0 k e) d -> d k e");
    layer.add("attention.w_v", "self_attention.kv_proj.weight", one ? "(2:1 1:0 e) d -> d e" : "(2:1 k e) d -> d k e");
    layer.add("ffn.select", "mlp.router.layer.weight", "n d -> d n");
    layer.add("ffn.w_gate", "mlp.input_linear.weight", "n (2:0 g) d -> n d g");
    layer.add("ffn.w_up", "mlp.input_linear.weight", "n (2:1 g) d -> n d g");
    layer.add("ffn.w_down", "mlp.output_linear.weight", "n d g -> n g d");
    layer.add("ffn.b_out", "mlp.bias", "d");
  }
};

}  // namespace

const Architecture& jetmoe() {
  static const JetMoe kJetMoe;
  return kJetMoe;
}

}  // namespace headroom::store
