// JetMoE: Mixture of Attention Heads whose experts are groups of query heads, and gated experts instead of an MLP. Both
// are routed by a softmax over the routed scores and have one bias of their output.
#include "architecture.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention_part.h"

namespace headroom::store {
namespace {

constexpr double kLayerEpsilon = 1e-6;  // of the layers' norms, regardless of rms_norm_eps, which is the last norm's

class JetMoe : public Architecture {
 public:
  JetMoe() : Architecture({.kinds = {"jetmoe"}, .aliases = {{"head_dim", "kv_channels"}}}) {}

  config::ModelOptions read(const Settings& s) const override {
    config::ModelOptions o = read_decoder(s, {.vocabulary_size = 32000,
                                              .n_layers = 12,
                                              .d_model = 2048,
                                              .context_length = 4096,
                                              .norm_epsilon = kLayerEpsilon,
                                              .tied_embeddings = true});
    o.final_norm_epsilon = o.norm_epsilon == kLayerEpsilon ? 0.0 : o.norm_epsilon;
    o.norm_epsilon = kLayerEpsilon;
    const std::int64_t n_experts = s.size("num_local_experts", 8), top_k = s.size("num_experts_per_tok", 2);
    read_attention(s, n_experts, top_k, o.attention);
    config::MlpOptions& mlp = o.mlp;
    mlp.kind = config::MlpKind::experts;
    mlp.d_hidden = s.size("intermediate_size", 5632);
    mlp.activation = s.activation("activation_function", "silu");
    mlp.n_experts = n_experts;
    mlp.top_k = top_k;
    mlp.expert_kind = config::ExpertKind::gated;
    mlp.expert_bias = config::ExpertBias::output;
    mlp.gate = config::Gate::softmax_top_k;
    mlp.entropy_coefficient = 0.0;
    return o;
  }

  std::string obstacle(const config::ModelOptions& o) const override {
    const config::AttentionOptions& a = o.attention;
    const auto& routing = a.of<config::RoutingOptions>();
    const std::string differs = first_difference(o, usual(),
                                                 {"attention.projection",
                                                  "attention.score",
                                                  "attention.composition",
                                                  "output_norms",
                                                  "scaled_embeddings",
                                                  "attention.position",
                                                  "attention.qk_norm",
                                                  "attention.bias",
                                                  "attention.gate",
                                                  "attention.noisy_routing",
                                                  "attention.output_bias",
                                                  "norm",
                                                  "norm_epsilon",
                                                  "arrangement",
                                                  "mlp.kind",
                                                  "mlp.expert_kind",
                                                  "mlp.expert_bias",
                                                  "mlp.gate",
                                                  "mlp.gate_scale",
                                                  "mlp.d_shared"});
    return !differs.empty() ? differs
                            : first_of({{a.n_kv_heads != a.computed_kv_heads(), "attention.n_kv_heads"},
                                        {o.mlp.n_experts != routing.n_experts, "mlp.n_experts"},
                                        {o.mlp.top_k != routing.top_k, "mlp.top_k"}});
  }

  Json write(const config::ModelOptions& o, const std::string& /*kind*/) const override {
    const config::AttentionOptions& a = o.attention;
    const auto& position = a.of<config::PositionOptions>();
    return {{"model_type", "jetmoe"},
            {"architectures", {"JetMoeForCausalLM"}},
            {"num_hidden_layers", o.n_layers},
            {"hidden_size", o.d_model},
            {"num_key_value_heads", a.n_kv_heads},
            {"kv_channels", a.d_head},
            {"max_position_embeddings", o.context_length},
            {"intermediate_size", o.mlp.d_hidden},
            {"activation_function", activation_name(o.mlp.activation)},
            {"num_local_experts", o.mlp.n_experts},
            {"num_experts_per_tok", o.mlp.top_k},
            {"rms_norm_eps", o.last_norm_epsilon()},
            {"rope_theta", position.rope_base},
            {"rope_parameters", rope_parameters(position)}};
  }

 private:
  static void read_attention(const Settings& s, std::int64_t n_experts, std::int64_t top_k,
                             config::AttentionOptions& a) {
    a.projection = "routed_heads";
    a.n_kv_heads = s.size("num_key_value_heads", 16);
    a.n_heads = a.n_kv_heads * top_k;
    a.d_head = s.size("kv_channels", 128);
    s.require("num_attention_heads", s.size("num_attention_heads", a.n_heads) == a.n_heads);
    auto& routing = a.of<config::RoutingOptions>();
    routing.n_experts = n_experts;
    routing.top_k = top_k;
    routing.gate = config::Gate::softmax_top_k;
    auto& heads = a.of<config::RoutedHeadOptions>();
    heads.output_bias = true;
    heads.switch_coefficient = heads.z_coefficient = 0.0;
    read_rope(s, a, {.fraction = 1.0});
  }

  void map_layer(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                 const std::string& theirs) const override {
    map_norm(mappings, o, ours + "norm_1", theirs + "input_layernorm");
    map_norm(mappings, o, ours + "norm_2", theirs + "post_attention_layernorm");
    map_attention(mappings, o, ours + "attention.", theirs + "self_attention.");
    const std::int64_t d = o.d_model, g = o.mlp.d_hidden, n = o.mlp.n_experts;
    mappings.push_back(transposed(ours + "ffn.select", theirs + "mlp.router.layer.weight", d, n));
    for (const auto& [which, i] : {std::pair("gate", 0), std::pair("up", 1)}) {
      mappings.push_back({.parameter = fmt::format("{}ffn.w_{}", ours, which),
                          .tensor = theirs + "mlp.input_linear.weight",
                          .stored = {n, 2 * g, d},
                          .view = {n, 2, g, d},
                          .part = {{1, i}},
                          .order = {0, 2, 1}});
    }
    mappings.push_back({.parameter = ours + "ffn.w_down",
                        .tensor = theirs + "mlp.output_linear.weight",
                        .stored = {n, d, g},
                        .order = {0, 2, 1}});
    mappings.push_back(same(ours + "ffn.b_out", theirs + "mlp.bias", {d}));
  }

  // With one key and value head, the parameters have no axis of heads.
  static void map_attention(std::vector<Mapping>& mappings, const config::ModelOptions& o, const std::string& ours,
                            const std::string& theirs) {
    const config::AttentionOptions& a = o.attention;
    const std::int64_t d = o.d_model, h = a.n_kv_heads, e = a.d_head, n = a.of<config::RoutingOptions>().n_experts;
    const bool one = h == 1;
    mappings.push_back(transposed(ours + "select", theirs + "experts.router.layer.weight", d, n));
    mappings.push_back({.parameter = ours + "w_q",
                        .tensor = theirs + "experts.input_linear.weight",
                        .stored = {n, h * e, d},
                        .view = {n, h, e, d},
                        .order = {0, 3, 1, 2},
                        .shape = one ? std::vector{n, d, e} : std::vector{n, d, h, e}});
    mappings.push_back({.parameter = ours + "w_o",
                        .tensor = theirs + "experts.output_linear.weight",
                        .stored = {n, d, h * e},
                        .view = {n, d, h, e},
                        .order = {0, 2, 3, 1},
                        .shape = one ? std::vector{n, e, d} : std::vector{n, h, e, d}});
    mappings.push_back(same(ours + "b_out", theirs + "experts.bias", {d}));
    for (const auto& [name, i] : {std::pair("w_k", 0), std::pair("w_v", 1)}) {
      mappings.push_back({.parameter = ours + name,
                          .tensor = theirs + "kv_proj.weight",
                          .stored = {2 * h * e, d},
                          .view = {2, h, e, d},
                          .part = {{0, i}},
                          .order = {2, 0, 1},
                          .shape = one ? std::vector{d, e} : std::vector{d, h, e}});
    }
  }
};

}  // namespace

const Architecture& jetmoe() {
  static const JetMoe kJetMoe;
  return kJetMoe;
}

}  // namespace headroom::store
