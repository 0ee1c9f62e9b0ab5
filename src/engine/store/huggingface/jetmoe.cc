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
  JetMoe() : Architecture({.kinds = {"jetmoe"}}) {}

  config::ModelOptions read(const Settings& s) const override {
    config::ModelOptions o;
    o.vocabulary_size = s.size("vocab_size", 32000);
    o.n_layers = s.size("num_hidden_layers", 12);
    o.d_model = s.size("hidden_size", 2048);
    o.context_length = s.size("max_position_embeddings", 4096);
    o.norm = config::Norm::rms;
    o.norm_epsilon = kLayerEpsilon;
    const double last = s.epsilon("rms_norm_eps", kLayerEpsilon);
    o.final_norm_epsilon = last == kLayerEpsilon ? 0.0 : last;
    o.tied_embeddings = s.flag("tie_word_embeddings", true);
    o.head_bias = false;
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
    const config::AttentionOptions &a = o.attention, plain;
    const auto& routing = a.of<config::RoutingOptions>();
    const auto& heads = a.of<config::RoutedHeadOptions>();
    return first_of({{a.projection != "routed_heads", "attention.projection"},
                     {a.score != plain.score, "attention.score"},
                     {a.composition != plain.composition, "attention.composition"},
                     {o.output_norms, "output_norms"},
                     {o.scaled_embeddings, "scaled_embeddings"},
                     {a.position != "rope", "attention.position"},
                     {a.qk_norm, "attention.qk_norm"},
                     {a.bias, "attention.bias"},
                     {routing.gate != config::Gate::softmax_top_k, "attention.gate"},
                     {heads.noisy_routing, "attention.noisy_routing"},
                     {!heads.output_bias, "attention.output_bias"},
                     {a.n_kv_heads != a.computed_kv_heads(), "attention.n_kv_heads"},
                     {o.norm != config::Norm::rms, "norm"},
                     {o.norm_epsilon != kLayerEpsilon, "norm_epsilon"},
                     {o.arrangement != config::Arrangement::sequential, "arrangement"},
                     {o.mlp.kind != config::MlpKind::experts, "mlp.kind"},
                     {o.mlp.n_experts != routing.n_experts, "mlp.n_experts"},
                     {o.mlp.top_k != routing.top_k, "mlp.top_k"},
                     {o.mlp.expert_kind != config::ExpertKind::gated, "mlp.expert_kind"},
                     {o.mlp.expert_bias != config::ExpertBias::output, "mlp.expert_bias"},
                     {o.mlp.gate != config::Gate::softmax_top_k, "mlp.gate"},
                     {o.mlp.gate_scale != 1.0, "mlp.gate_scale"},
                     {o.mlp.d_shared != 0, "mlp.d_shared"}});
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
