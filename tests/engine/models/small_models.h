// Small models, and helpers for their decoding and gradients.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headroom/config/attention/differential_options.h"
#include "headroom/config/attention/gated_delta_options.h"
#include "headroom/config/attention/latent_options.h"
#include "headroom/config/attention/output_gate_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/models/decoding.h"
#include "headroom/nn/parameters.h"
#include "tiny/options.h"

namespace headroom::testing {

inline config::ModelOptions three_experts() {
  config::ModelOptions o = tiny::model();
  o.attention.of<config::RoutingOptions>().n_experts = 3;
  return o;
}

// Two SwitchAll layers that are each two layers, with norms of keys, queries and routing alone.
inline config::ModelOptions moeut() {
  config::ModelOptions o = three_experts();
  o.n_layers = 4;
  o.n_groups = 2;
  o.norm_position = config::NormPosition::peri;
  o.scaled_embeddings = true;
  o.attention.projection = "experts";
  o.attention.d_head = 8;
  o.attention.of<config::PositionOptions>().rope_fraction = 0.5;
  o.attention.of<config::ExpertOptions>().expert_entropy_coefficient = 0.001;
  o.mlp.kind = config::MlpKind::experts;
  o.mlp.activation = config::Activation::relu;
  return o;
}

// Language models that differ in their decoding state and in where chunks end.
inline std::vector<std::pair<std::string, config::ModelOptions>> language_models() {
  std::vector<std::pair<std::string, config::ModelOptions>> all;
  config::ModelOptions o = three_experts();
  all.emplace_back("rope", o);
  o.arrangement = config::Arrangement::parallel;
  o.norm = config::Norm::rms;
  o.mlp.kind = config::MlpKind::gated;
  all.emplace_back("parallel rms gated", o);
  o = three_experts();
  o.norm_position = config::NormPosition::post;
  o.attention.position = "learned";
  o.tied_embeddings = true;
  all.emplace_back("post learned tied", o);
  o = three_experts();
  o.attention.position = "sinusoidal";
  o.attention.window = 3;
  o.attention.window_pattern = "1:1";
  all.emplace_back("sinusoidal windows", o);
  o = three_experts();
  o.attention.position = "relative";
  o.memory_length = 8;
  all.emplace_back("dense xl", o);
  o.attention.projection = "experts";
  o.attention.of<config::PositionOptions>().position_bias = true;
  o.mlp.kind = config::MlpKind::experts;
  all.emplace_back("switchall xl", o);
  o.attention.position = "rope";
  o.attention.of<config::PositionOptions>().position_bias = false;
  all.emplace_back("switchall rope with memory", o);
  o = three_experts();
  o.attention.projection = "routed_heads";
  o.attention.position = "relative";
  o.attention.scale = config::Scale::learned;
  o.memory_length = 8;
  all.emplace_back("moa xl", o);
  o = three_experts();
  o.attention.composition = "dynamic";
  o.attention.qk_norm = true;
  o.attention.window = 3;
  o.attention.window_pattern = "1:1";
  all.emplace_back("dcformer local and global", o);
  o = three_experts();
  o.attention.score = "gaussian_mixture";
  o.attention.of<config::MixtureOptions>().keys = config::Keys::shifted;
  o.attention.of<config::MixtureOptions>().prior = config::Prior::head_position;
  o.memory_length = 8;
  all.emplace_back("shifted mixture with memory", o);
  o.attention.window = 5;
  o.attention.of<config::MixtureOptions>().keys = config::Keys::own;
  all.emplace_back("own mixture with memory and window", o);
  o = three_experts();
  o.attention.score = "linear";
  o.attention.of<config::LinearOptions>().output_scale = config::OutputScale::inv_sqrt_length;
  all.emplace_back("mixture of linear keys", o);
  o.attention.position = "none";
  o.attention.of<config::MixtureOptions>().keys = config::Keys::single;
  o.memory_length = 8;
  all.emplace_back("linear with memory", o);
  o = three_experts();
  o.attention.projection = "experts";
  o.attention.composition = "dynamic";
  o.attention.score = "gaussian_mixture";
  o.adaptive_cutoffs = {5, 11};
  all.emplace_back("composed mixture of expert heads, adaptive softmax", o);
  o = tiny::model();
  o.attention.projection = "latent";
  o.attention.of<config::LatentOptions>().kv_rank = 5;
  o.attention.of<config::LatentOptions>().q_rank = 6;
  o.attention.of<config::LatentOptions>().d_rotary = 2;
  o.attention.of<config::LatentOptions>().d_value = 3;
  all.emplace_back("latent", o);
  config::ModelOptions other = tiny::model();
  other.attention.projection = "factored";
  other.attention.of<config::LatentOptions>() = {.kv_rank = 2, .q_rank = 3};
  all.emplace_back("factored", other);
  other.attention.projection = "tied";
  other.attention.position = "none";
  other.attention.n_kv_heads = 1;
  all.emplace_back("tied", other);
  other = o;
  other.attention.of<config::LatentOptions>().kv_rank = 6;
  other.attention.of<config::LatentOptions>().latent_groups = 2;
  all.emplace_back("grouped latents", other);
  o.attention.gate_output = "element";
  o.attention.of<config::DotOptions>().sink = true;
  o.attention.composition = "dynamic";
  o.memory_length = 8;
  o.attention.window = 5;
  all.emplace_back("latent, gated, sink, composed, with memory and window", o);
  o = three_experts();
  o.attention.projection = "experts";
  o.attention.position = "relative";
  o.attention.gate_output = "head";
  o.attention.of<config::DotOptions>().sink = true;
  o.memory_length = 8;
  all.emplace_back("gated switchhead xl with a sink", o);
  o = three_experts();
  o.attention.projection = "routed_queries";
  o.attention.n_heads = 6;
  o.attention.n_kv_heads = 2;
  o.attention.position = "relative";
  o.attention.of<config::PositionOptions>().position_bias = true;
  o.memory_length = 8;
  all.emplace_back("routed queries xl", o);
  o = three_experts();
  o.attention.projection = "shared_and_routed";
  o.attention.n_heads = 4;
  o.attention.of<config::SharedHeadOptions>().shared_heads = 1;
  o.attention.window = 5;
  all.emplace_back("shared and routed heads with a window", o);
  o = three_experts();
  o.attention.position = "forgetting";
  o.attention.gate_output = "head";
  o.attention.of<config::OutputGateOptions>() = {.exclusive = true, .gate_channels = 3};
  o.memory_length = 8;
  all.emplace_back("forget gates, gated and exclusive, with memory", o);
  o = three_experts();
  o.attention.position = "alibi";
  o.attention.composition = "dynamic";
  o.attention.window = 5;
  all.emplace_back("linear biases, composed, with a window", o);
  o = three_experts();
  o.n_layers = 3;
  o.layers = {{.repeat = 1, .attention = {{"window", "3"}, {"composition", "\"dynamic\""}}, .mlp = {}},
              {.repeat = 1,
               .attention = {{"projection", "\"experts\""}, {"n_heads", "3"}},
               .mlp = {{"kind", "\"experts\""}, {"d_hidden", "5"}}}};
  all.emplace_back("composed windows and switchall", o);
  o.layers = {{.repeat = 2, .attention = {{"score", "\"linear\""}, {"keys", "\"single\""}}, .mlp = {}},
              {.repeat = 1,
               .attention = {{"projection", "\"latent\""}, {"kv_rank", "5"}, {"position", "\"none\""}},
               .mlp = {}}};
  all.emplace_back("linear and latent", o);
  o = tiny::model();
  o.attention.score = "gated_delta";
  o.attention.position = "none";
  o.attention.of<config::GatedDeltaOptions>() = {.delta_key_heads = 1, .delta_d_value = 5};
  all.emplace_back("gated delta", o);
  o = three_experts();
  o.n_layers = 3;
  o.layers = {{.repeat = 2, .attention = {{"score", "\"gated_delta\""}, {"position", "\"none\""}}, .mlp = {}},
              {.repeat = 1, .attention = {{"gate_output", "\"element\""}}, .mlp = {}}};
  all.emplace_back("gated delta and gated attention", o);
  o = three_experts();
  o.n_layers = 3;
  o.memory_length = 8;
  o.layers = {{.repeat = 1, .attention = {{"position", "\"relative\""}}, .mlp = {{"kind", "\"gated\""}}},
              {.repeat = 1, .attention = {{"projection", "\"routed_heads\""}, {"n_experts", "5"}}, .mlp = {}}};
  all.emplace_back("xl and moa", o);
  o = three_experts();
  o.attention.composition = "differential";
  o.attention.n_kv_heads = 1;
  all.emplace_back("differential", o);
  o.attention.of<config::DifferentialOptions>().differential_version = 1;
  o.attention.projection = "experts";
  o.attention.n_kv_heads = 0;
  o.memory_length = 8;
  all.emplace_back("differential experts with memory, version 1", o);
  o = moeut();
  all.emplace_back("moeut", o);
  o.memory_length = 8;
  all.emplace_back("moeut with memory", o);
  return all;
}

// Expects a finite gradient of every parameter that is not 0, except for parameters whose last name is in
// `may_be_zero`.
inline void expect_gradients(const nn::Parameters& parameters, const std::string& model,
                             const std::set<std::string>& may_be_zero = {}) {
  for (const nn::Parameter& p : parameters.all()) {
    ASSERT_TRUE(p.tensor.grad().defined()) << model << ": " << p.name;
    EXPECT_TRUE(p.tensor.grad().isfinite().all().item<bool>()) << model << ": " << p.name;
    const std::string last = p.name.substr(p.name.rfind('.') + 1);
    if (!may_be_zero.contains(last)) {
      EXPECT_GT(p.tensor.grad().abs().max().item<double>(), 1e-9) << model << ": " << p.name;
    }
  }
}

// The logits [N, V] after tokens [N, n].
template <class Model>
at::Tensor decode(const Model& model, const at::Tensor& tokens, std::vector<models::DecodeState>& states,
                  const nn::Context& context = {}) {
  const at::Tensor dense = tokens.contiguous();
  return model.decode(models::decode_rows(dense, states), context);
}

}  // namespace headroom::testing
