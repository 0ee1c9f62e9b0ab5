// Small models, and helpers that decode them and check their gradients.
#pragma once

#include <gtest/gtest.h>

#include "headroom/models/decoding.h"
#include "headroom/nn/parameters.h"
#include "tiny/options.h"

namespace headroom::testing {

inline config::ModelOptions three_experts() {
  config::ModelOptions o = tiny::model();
  o.attention.of<config::RoutingOptions>().n_experts = 3;
  return o;
}

// A named change of a model, in the form that tiny::changed() takes.
struct Change {
  std::string name, attention, rest = {};
};

using Models = std::vector<std::pair<std::string, config::ModelOptions>>;

inline Models models_of(const config::ModelOptions& model, const std::vector<Change>& changes) {
  Models all;
  for (const Change& change : changes) {
    all.emplace_back(change.name, tiny::changed(model, change.attention, change.rest));
  }
  return all;
}

// Returns two SwitchAll layers that are each used twice, with norms only before attention scores and routing.
inline config::ModelOptions moeut(const std::string& more = "") {
  return tiny::changed(
      three_experts(), "projection=experts d_head=8 rope_fraction=0.5 expert_entropy_coefficient=0.001",
      "n_layers=4 n_groups=2 norm_position=peri scaled_embeddings=true mlp.kind=experts mlp.activation=relu " + more);
}

// Returns language models that differ in their decoding state and in the place where chunks end.
inline Models language_models() {
  const std::string xl = "memory_length=8", latent = "projection=latent kv_rank=5 q_rank=6 d_rotary=2 d_value=3 ";
  Models all = models_of(
      three_experts(),
      {{"rope", ""},
       {"parallel rms gated", "", "arrangement=parallel norm=rms mlp.kind=gated"},
       {"post learned tied", "position=learned", "norm_position=post tied_embeddings=true"},
       {"sinusoidal windows", "position=sinusoidal window=3 window_pattern=1:1"},
       {"dense xl", "position=relative", xl},
       {"switchall xl", "projection=experts position=relative position_bias=true", xl + " mlp.kind=experts"},
       {"switchall rope with memory", "projection=experts", xl + " mlp.kind=experts"},
       {"moa xl", "projection=routed_heads position=relative scale=learned", xl},
       {"dcformer local and global", "composition=dynamic qk_norm=true window=3 window_pattern=1:1"},
       {"shifted mixture with memory", "score=gaussian_mixture keys=shifted prior=head_position", xl},
       {"own mixture with memory and window", "score=gaussian_mixture prior=head_position window=5", xl},
       {"mixture of linear keys", "score=linear output_scale=inv_sqrt_length"},
       {"linear with memory", "score=linear output_scale=inv_sqrt_length position=none keys=single", xl},
       {"composed mixture of expert heads, adaptive softmax",
        "projection=experts composition=dynamic score=gaussian_mixture", "adaptive_cutoffs=[5,11]"},
       {"latent", latent},
       {"factored", "projection=factored kv_rank=2 q_rank=3"},
       {"tied", "projection=tied position=none n_kv_heads=1"},
       {"grouped latents", latent + "kv_rank=6 latent_groups=2"},
       {"latent, gated, sink, composed, with memory and window",
        latent + "gate_output=element sink=true composition=dynamic window=5", xl},
       {"gated switchhead xl with a sink", "projection=experts position=relative gate_output=head sink=true", xl},
       {"routed queries xl", "projection=routed_queries n_heads=6 n_kv_heads=2 position=relative position_bias=true",
        xl},
       {"shared and routed heads with a window", "projection=shared_and_routed n_heads=4 shared_heads=1 window=5"},
       {"forget gates, gated and exclusive, with memory",
        "position=forgetting gate_output=head exclusive=true gate_channels=3", xl},
       {"linear biases, composed, with a window", "position=alibi composition=dynamic window=5"},
       {"composed windows and switchall", "",
        R"(n_layers=3 layers=[{attention={window=3,composition="dynamic"}},)"
        R"({attention={projection="experts",n_heads=3},mlp={kind="experts",d_hidden=5}}])"},
       {"linear and latent", "",
        R"(n_layers=3 layers=[{repeat=2,attention={score="linear",keys="single"}},)"
        R"({attention={projection="latent",kv_rank=5,position="none"}}])"},
       {"gated delta", "score=gated_delta position=none delta_key_heads=1 delta_d_value=5"},
       {"gated delta and gated attention", "",
        R"(n_layers=3 layers=[{repeat=2,attention={score="gated_delta",position="none"}},)"
        R"({attention={gate_output="element"}}])"},
       {"xl and moa", "",
        xl + R"( n_layers=3 layers=[{attention={position="relative"},mlp={kind="gated"}},)"
             R"({attention={projection="routed_heads",n_experts=5}}])"},
       {"shared keys and windows, layers without attention or MLP", "",
        R"(n_layers=5 layers=[{attention={window=5,n_kv_heads=2}},{attention={n_heads=0},mlp={kind="gated"}},)"
        R"({attention={share_kv=2,n_heads=4,n_kv_heads=2,window=3,sink=true,qk_norm=true}},)"
        R"({attention={share_kv=1,n_kv_heads=2,window=5,composition="static"},mlp={kind="none"}}])"},
       {"shared keys with memory, gated experts", "gate_output=head",
        xl + R"( n_layers=3 layers=[{},{attention={share_kv=1,projection="experts",experts=["q","o"]}},)"
             R"({attention={share_kv=1,projection="shared_and_routed",shared_heads=1,top_k=1}}])"},
       {"shared keys of experts, linear biases", "position=alibi",
        R"(n_layers=3 layers=[{attention={projection="experts",composition="dynamic"}},{attention={share_kv=1}}])"},
       {"differential", "composition=differential n_kv_heads=1"},
       {"differential experts with memory, version 1",
        "composition=differential differential_version=1 projection=experts", xl}});
  all.emplace_back("moeut", moeut());
  all.emplace_back("moeut with memory", moeut(xl));
  return all;
}

// Expects that every parameter has a finite gradient that is not 0. Parameters whose last name is in `may_be_zero` may
// have the gradient 0.
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

// Decodes tokens [N, n] and returns the logits [N, V] after the last.
template <class Model>
at::Tensor decode(const Model& model, const at::Tensor& tokens, std::vector<models::DecodeState>& states,
                  const nn::Context& context = {}) {
  const at::Tensor dense = tokens.contiguous();
  return model.decode(models::decode_rows(dense, states), context);
}

}  // namespace headroom::testing
