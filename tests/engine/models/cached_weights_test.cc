// Tests that cached weights give bit-identical results to weights that are cast for every token.

#include "headroom/models/language_model.h"
#include "small_models.h"

namespace headroom::models::cached_weights_test {

using config::ModelOptions;
using testing::decode;

ModelOptions tiny() {
  config::ModelOptions o =
      tiny::changed(tiny::model(), "", "d_model=16 attention.d_head=8 attention.n_experts=3 mlp.d_hidden=24");
  return o;
}

testing::Models kinds() {
  return testing::models_of(
      tiny(), {{"dense", "bias=true qk_norm=true"},
               {"gated, tied", "position=learned", "mlp.kind=gated tied_embeddings=true"},
               {"experts", "projection=experts experts=[q,k,v,o] position=relative position_bias=true",
                "mlp.kind=experts memory_length=8"},
               {"gated heads, adaptive softmax", "projection=gated_heads", "adaptive_cutoffs=[7,15]"},
               {"routed heads", "projection=routed_heads position=relative scale=learned", "memory_length=8"},
               {"composed heads", "composition=dynamic compose_static=true"},
               {"mixture", "score=gaussian_mixture"},
               {"shifted mixture", "score=gaussian_mixture keys=shifted scale=learned"},
               {"linear", "score=linear"},
               {"latent, gated, sink", "projection=latent kv_rank=6 q_rank=10 gate_output=element sink=true"}});
}

std::int64_t bytes(const nn::Parameters& parameters) {
  std::int64_t total = 0;
  for (const nn::Parameter& p : parameters.all()) {
    total += static_cast<std::int64_t>(p.tensor.nbytes());
  }
  return total;
}

TEST(KeptProducts, DecodeToTheSameLogits) {
  const nn::Context context{.compute_dtype = at::kBFloat16};
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

}  // namespace headroom::models::cached_weights_test
