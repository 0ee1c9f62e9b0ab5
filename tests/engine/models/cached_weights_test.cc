// Cached weights give the same results as weights cast for every token, bit for bit.
#include <gtest/gtest.h>

#include "headroom/config/attention/composition_options.h"
#include "headroom/config/attention/latent_options.h"
#include "headroom/config/attention/position_options.h"
#include "headroom/config/attention/routing_options.h"
#include "headroom/config/attention/score_options.h"
#include "headroom/models/language_model.h"
#include "small_models.h"

namespace headroom::models {
namespace cached_weights_test {

using config::ModelOptions;
using testing::decode;

ModelOptions tiny() {
  ModelOptions o = tiny::model();
  o.d_model = 16;
  o.attention.d_head = 8;
  o.attention.of<config::RoutingOptions>().n_experts = 3;
  o.mlp.d_hidden = 24;
  return o;
}

std::vector<std::pair<std::string, ModelOptions>> kinds() {
  std::vector<std::pair<std::string, ModelOptions>> all;
  ModelOptions o = tiny();
  o.attention.bias = true;
  o.attention.qk_norm = true;
  all.emplace_back("dense", o);
  o = tiny();
  o.mlp.kind = config::MlpKind::gated;
  o.tied_embeddings = true;
  o.attention.position = "learned";
  all.emplace_back("gated, tied", o);
  o = tiny();
  o.attention.projection = "experts";
  o.attention.of<config::ExpertOptions>().experts = {"q", "k", "v", "o"};
  o.attention.position = "relative";
  o.attention.of<config::PositionOptions>().position_bias = true;
  o.mlp.kind = config::MlpKind::experts;
  o.memory_length = 8;
  all.emplace_back("experts", o);
  o = tiny();
  o.attention.projection = "gated_heads";
  o.adaptive_cutoffs = {7, 15};
  all.emplace_back("gated heads, adaptive softmax", o);
  o = tiny();
  o.attention.projection = "routed_heads";
  o.attention.position = "relative";
  o.attention.scale = config::Scale::learned;
  o.memory_length = 8;
  all.emplace_back("routed heads", o);
  o = tiny();
  o.attention.composition = "dynamic";
  o.attention.of<config::CompositionOptions>().compose_static = true;
  all.emplace_back("composed heads", o);
  o = tiny();
  o.attention.score = "gaussian_mixture";
  all.emplace_back("mixture", o);
  o.attention.of<config::MixtureOptions>().keys = config::Keys::shifted;
  o.attention.scale = config::Scale::learned;
  all.emplace_back("shifted mixture", o);
  o = tiny();
  o.attention.score = "linear";
  all.emplace_back("linear", o);
  o = tiny();
  o.attention.projection = "latent";
  o.attention.of<config::LatentOptions>().kv_rank = 6;
  o.attention.of<config::LatentOptions>().q_rank = 10;
  o.attention.gate_output = "element";
  o.attention.of<config::DotOptions>().sink = true;
  all.emplace_back("latent, gated, sink", o);
  return all;
}

std::int64_t bytes(const nn::Parameters& parameters) {
  std::int64_t total = 0;
  for (const nn::Parameter& p : parameters.all()) {
    total += static_cast<std::int64_t>(p.tensor.nbytes());
  }
  return total;
}

TEST(KeptProducts, DecodeToTheSameLogits) {
  nn::Context context;
  context.compute_dtype = at::kBFloat16;
  for (const auto& [name, options] : kinds()) {
    const LanguageModel cast(options, 3);
    LanguageModel kept(options, 3);
    kept.parameters().cache_weights_in(at::kBFloat16);
    at::manual_seed(4);
    const at::Tensor tokens = at::randint(options.vocabulary_size, {2, 12}, at::kLong);
    std::vector<DecodeState> a(2, cast.start_decoding()), b(2, kept.start_decoding());
    EXPECT_TRUE(decode(cast, tokens, a, context).equal(decode(kept, tokens, b, context))) << name;
    for (std::int64_t t = 0; t < 8; ++t) {
      const at::Tensor one = tokens.narrow(1, t, 1);
      EXPECT_TRUE(decode(cast, one, a, context).equal(decode(kept, one, b, context))) << name << " at " << t;
    }
    Memory none, same;
    const at::Tensor row = tokens.narrow(1, 0, 8);
    EXPECT_TRUE(cast.logits(row, none, context).equal(kept.logits(row, same, context))) << name;
    EXPECT_LT(bytes(kept.parameters()), 0.75 * static_cast<double>(bytes(cast.parameters()))) << name;
    for (const nn::Parameter& p : kept.parameters().all()) {
      const bool single =
          p.name.find("norm") != std::string::npos || p.name.find("select") != std::string::npos || p.name == "embed";
      EXPECT_FALSE(single && p.tensor.scalar_type() != at::kFloat) << name << ": " << p.name;
    }
  }
}

}  // namespace cached_weights_test
}  // namespace headroom::models
