#include "headroom/models/language_model.h"

#include <gtest/gtest.h>

#include <vector>

#include "headroom/config/config.h"
#include "headroom/core/error.h"
#include "headroom/cost/cache.h"
#include "one_thread.h"
#include "ops/gradients.h"
#include "tiny.h"

namespace headroom::models {
namespace language_model_test {

using config::ModelOptions;
using testing::relative_error;

ModelOptions tiny() {
  ModelOptions o = testing::tiny_model();
  o.attention.n_experts = 3;
  return o;
}

std::vector<std::pair<std::string, ModelOptions>> kinds() {
  std::vector<std::pair<std::string, ModelOptions>> all;
  ModelOptions o = tiny();
  all.emplace_back("rope", o);
  o.arrangement = config::Arrangement::parallel;
  o.norm = config::Norm::rms;
  o.mlp.kind = config::MlpKind::gated;
  all.emplace_back("parallel rms gated", o);
  o = tiny();
  o.norm_position = config::NormPosition::post;
  o.attention.position = "learned";
  o.tied_embeddings = true;
  all.emplace_back("post learned tied", o);
  o = tiny();
  o.attention.position = "sinusoidal";
  o.attention.window = 3;
  o.attention.window_pattern = "1:1";
  all.emplace_back("sinusoidal windows", o);
  o = tiny();
  o.attention.position = "relative";
  o.memory_length = 8;
  all.emplace_back("dense xl", o);
  o.attention.projection = "experts";
  o.attention.position_bias = true;
  o.mlp.kind = config::MlpKind::experts;
  all.emplace_back("switchall xl", o);
  o.attention.position = "rope";
  o.attention.position_bias = false;
  all.emplace_back("switchall rope with memory", o);
  o = tiny();
  o.attention.projection = "routed_heads";
  o.attention.position = "relative";
  o.attention.scale = config::Scale::learned;
  o.memory_length = 8;
  all.emplace_back("moa xl", o);
  o = tiny();
  o.attention.composition = "dynamic";
  o.attention.qk_norm = true;
  o.attention.window = 3;
  o.attention.window_pattern = "1:1";
  all.emplace_back("dcformer local and global", o);
  o = tiny();
  o.attention.score = "gaussian_mixture";
  o.attention.keys = config::Keys::shifted;
  o.attention.prior = config::Prior::head_position;
  o.memory_length = 8;
  all.emplace_back("shifted mixture with memory", o);
  o.attention.window = 5;
  o.attention.keys = config::Keys::own;
  all.emplace_back("own mixture with memory and window", o);
  o = tiny();
  o.attention.score = "linear";
  o.attention.output_scale = config::OutputScale::inv_sqrt_length;
  all.emplace_back("mixture of linear keys", o);
  o.attention.position = "none";
  o.attention.keys = config::Keys::single;
  o.memory_length = 8;
  all.emplace_back("linear with memory", o);
  o = tiny();
  o.attention.projection = "experts";
  o.attention.composition = "dynamic";
  o.attention.score = "gaussian_mixture";
  o.adaptive_cutoffs = {5, 11};
  all.emplace_back("composed mixture of expert heads, adaptive softmax", o);
  o = tiny();
  o.attention.projection = "latent";
  o.attention.kv_rank = 5;
  o.attention.q_rank = 6;
  o.attention.d_rotary = 2;
  o.attention.d_value = 3;
  all.emplace_back("latent", o);
  o.attention.gate_output = "element";
  o.attention.sink = true;
  o.attention.composition = "dynamic";
  o.memory_length = 8;
  o.attention.window = 5;
  all.emplace_back("latent, gated, sink, composed, with memory and window", o);
  o = tiny();
  o.attention.projection = "experts";
  o.attention.position = "relative";
  o.attention.gate_output = "head";
  o.attention.sink = true;
  o.memory_length = 8;
  all.emplace_back("gated switchhead xl with a sink", o);
  return all;
}

bool has_balance_loss(const ModelOptions& o) {
  return o.mlp.kind == config::MlpKind::experts || o.attention.projection == "routed_heads";
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t n, std::int64_t vocabulary) {
  return at::randint(vocabulary, {batch, n}, at::kLong);
}

TEST(LanguageModel, LossIsTheMeanCrossEntropyOfItsLogits) {
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(1);
    const LanguageModel model(options, 3, at::kDouble);
    Memory a, b;
    for (int chunk = 0; chunk < 3; ++chunk) {
      const at::Tensor tokens = random_tokens(2, 9, options.vocabulary_size);
      const at::Tensor logits = model.logits(tokens.narrow(1, 0, 8), a, {});
      const at::Tensor expected =
          at::cross_entropy_loss(logits.reshape({16, -1}), tokens.narrow(1, 1, 8).reshape({-1}));
      const Loss loss = model.loss(tokens, b, {});
      EXPECT_NEAR(loss.cross_entropy.item<double>(), expected.item<double>(), 1e-12) << name;
      EXPECT_EQ(loss.regulariser.defined(), has_balance_loss(options)) << name;
    }
  }
}

TEST(LanguageModel, DecodingEqualsChunksWithCarriedMemory) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(2);
    const LanguageModel model(options, 3, at::kDouble);
    const bool carries = options.memory_length > 0;
    const std::int64_t n = carries ? 24 : 8;  // without memory, chunks know nothing of each other
    const at::Tensor tokens = random_tokens(2, n, options.vocabulary_size);
    Memory memory;
    std::vector<at::Tensor> chunks;
    for (std::int64_t begin = 0; begin < n; begin += 8) {
      chunks.push_back(model.logits(tokens.narrow(1, begin, 8), memory, {}));
    }
    const at::Tensor whole = at::cat(chunks, 1);
    auto state = model.start_decoding(2);
    EXPECT_LE(relative_error(model.decode(tokens.narrow(1, 0, 3), *state, {}), whole.select(1, 2)), 1e-11) << name;
    for (std::int64_t i = 3; i < n; ++i) {
      const at::Tensor step = model.decode(tokens.narrow(1, i, 1), *state, {});
      EXPECT_LE(relative_error(step, whole.select(1, i)), 1e-11) << name << " token " << i;
    }
  }
}

TEST(LanguageModel, TheCacheHoldsWhatCostSays) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : kinds()) {
    const LanguageModel model(options, 3);
    auto state = model.start_decoding(2);
    model.decode(random_tokens(2, 3, options.vocabulary_size), *state, {});
    EXPECT_EQ(model.cache_numbers(*state), cost::decoding_cache_numbers(options)) << name;
  }
}

TEST(LanguageModel, AFullContextWithoutMemorySlides) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(tiny(), 3, at::kDouble);
  const at::Tensor tokens = random_tokens(1, 9, 23);
  auto state = model.start_decoding(1);
  const at::Tensor after_nine = model.decode(tokens, *state, {});
  Memory none;
  // The ninth token follows the last half of the full context.
  const at::Tensor expected = model.logits(tokens.narrow(1, 4, 5), none, {}).select(1, 4);
  EXPECT_LE(relative_error(after_nine, expected), 1e-12);
}

TEST(LanguageModel, TheFutureAndOtherRowsChangeNothing) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(4);
    const LanguageModel model(options, 3, at::kDouble);
    const at::Tensor tokens = random_tokens(2, 8, options.vocabulary_size);
    at::Tensor changed = tokens.clone();
    changed.narrow(1, 5, 3).random_(options.vocabulary_size);
    changed[1].random_(options.vocabulary_size);
    Memory a, b;
    const at::Tensor before = model.logits(tokens, a, {})[0].narrow(0, 0, 5);
    EXPECT_LE(relative_error(model.logits(changed, b, {})[0].narrow(0, 0, 5), before), 1e-13) << name;
  }
}

TEST(LanguageModel, MemoryReachesExactlyOneChunkBack) {
  const at::NoGradGuard no_grad;
  ModelOptions options = kinds()[4].second;
  options.n_layers = 1;
  const LanguageModel model(options, 3, at::kDouble);
  const at::Tensor chunks = random_tokens(1, 24, 23);
  const auto last = [&](std::int64_t first_chunk) {
    Memory memory;
    at::Tensor logits;
    for (std::int64_t c = first_chunk; c < 3; ++c) {
      logits = model.logits(chunks.narrow(1, 8 * c, 8), memory, {});
    }
    return logits;
  };
  EXPECT_LE(relative_error(last(0), last(1)), 1e-14);  // one layer sees one chunk back
  EXPECT_GE(relative_error(last(1), last(2)), 1e-6);   // and does see it
}

TEST(LanguageModel, ASeedFixesEveryParameter) {
  const LanguageModel a(tiny(), 5), b(tiny(), 5), c(tiny(), 6);
  bool differs = false;
  for (std::size_t i = 0; i < a.parameters().all().size(); ++i) {
    EXPECT_TRUE(at::equal(a.parameters().all()[i].tensor, b.parameters().all()[i].tensor));
    differs = differs || !at::equal(a.parameters().all()[i].tensor, c.parameters().all()[i].tensor);
  }
  EXPECT_TRUE(differs);
}

TEST(LanguageModel, Bfloat16ProductsStayNearFloat) {
  for (const auto& [name, options] : kinds()) {
    at::manual_seed(6);
    const LanguageModel model(options, 3);
    const at::Tensor tokens = random_tokens(2, 9, options.vocabulary_size);
    Memory a, b;
    nn::Context half;
    half.compute_dtype = at::kBFloat16;
    const Loss exact = model.loss(tokens, a, {}), rounded = model.loss(tokens, b, half);
    // Logits of size ~1 after two layers of 8-bit products: a few times 2^-8.
    EXPECT_NEAR(rounded.cross_entropy.item<float>(), exact.cross_entropy.item<float>(), 0.05) << name;
    rounded.total().backward();
    for (const nn::Parameter& p : model.parameters().all()) {
      ASSERT_TRUE(p.tensor.grad().defined()) << name << " " << p.name;
      EXPECT_EQ(p.tensor.grad().scalar_type(), at::kFloat);
      EXPECT_TRUE(p.tensor.grad().isfinite().all().item<bool>()) << name << " " << p.name;
    }
  }
}

TEST(LanguageModel, TooLongAChunkAndMissingKindsAreRefused) {
  const LanguageModel model(tiny(), 1);
  Memory memory;
  EXPECT_THROW(model.logits(random_tokens(1, 9, 23), memory, {}), Error);
  ModelOptions other = tiny();
  other.kind = config::ModelKind::vision;
  EXPECT_THROW(LanguageModel(other, 1), MisuseError);
}

}  // namespace language_model_test
}  // namespace headroom::models
