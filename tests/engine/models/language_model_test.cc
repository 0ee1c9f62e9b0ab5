#include "headroom/models/language_model.h"

#include "engine/ops/gradients.h"
#include "headroom/config/attention_part.h"
#include "one_thread.h"
#include "small_models.h"

namespace headroom::models::language_model_test {

using config::ModelOptions;
using testing::decode;
using testing::language_models;
using testing::relative_error;

bool has_balance_loss(const ModelOptions& o) {
  const auto kinds = o.kinds_of_layers(o.n_layers);
  return std::any_of(kinds.begin(), kinds.end(), [](const auto& kind) {
    const ModelOptions& layer = kind.first;
    return layer.mlp.kind == config::MlpKind::experts ||
           !layer.attention.projection->balance_losses(layer.attention).empty();
  });
}

at::Tensor random_tokens(std::int64_t batch, std::int64_t n, std::int64_t vocabulary) {
  return at::randint(vocabulary, {batch, n}, at::kLong);
}

TEST(LanguageModel, LossIsTheMeanCrossEntropyOfItsLogits) {
  for (const auto& [name, options] : language_models()) {
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
  for (const auto& [name, options] : language_models()) {
    at::manual_seed(2);
    const LanguageModel model(options, 3, at::kDouble);
    const bool carries = options.memory_length > 0;
    const std::int64_t n = carries ? 24 : 8;  // without memory, chunks are independent
    const at::Tensor tokens = random_tokens(2, n, options.vocabulary_size);
    Memory memory;
    std::vector<at::Tensor> chunks;
    for (std::int64_t begin = 0; begin < n; begin += 8) {
      chunks.push_back(model.logits(tokens.narrow(1, begin, 8), memory, {}));
    }
    const at::Tensor whole = at::cat(chunks, 1);
    std::vector<DecodeState> states(2, model.start_decoding());
    EXPECT_LE(relative_error(decode(model, tokens.narrow(1, 0, 3), states), whole.select(1, 2)), 1e-11) << name;
    for (std::int64_t i = 3; i < n; ++i) {
      const at::Tensor step = decode(model, tokens.narrow(1, i, 1), states);
      EXPECT_LE(relative_error(step, whole.select(1, i)), 1e-11) << name << " token " << i;
    }
  }
}

TEST(LanguageModel, AFullContextWithoutMemorySlides) {
  const at::NoGradGuard no_grad;
  const LanguageModel model(testing::three_experts(), 3, at::kDouble);
  const at::Tensor tokens = random_tokens(1, 9, 23);
  std::vector<DecodeState> state(1, model.start_decoding());
  const at::Tensor after_nine = decode(model, tokens, state);
  Memory none;
  // The ninth token continues after the second half of the full context.
  const at::Tensor expected = model.logits(tokens.narrow(1, 4, 5), none, {}).select(1, 4);
  EXPECT_LE(relative_error(after_nine, expected), 1e-12);
}

TEST(LanguageModel, MemoryReachesExactlyOneChunkBack) {
  const at::NoGradGuard no_grad;
  ModelOptions options = language_models()[4].second;
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
  EXPECT_LE(relative_error(last(0), last(1)), 1e-14);  // one layer attends only one chunk back
  EXPECT_GE(relative_error(last(1), last(2)), 1e-6);   // the layer does attend one chunk back
}

TEST(LanguageModel, Bfloat16MatmulsStayCloseToFloat32) {
  for (const auto& [name, options] : language_models()) {
    at::manual_seed(6);
    const LanguageModel model(options, 3);
    const at::Tensor tokens = random_tokens(2, 9, options.vocabulary_size);
    Memory a, b;
    const nn::Context half{.compute_dtype = at::kBFloat16};
    const Loss exact = model.loss(tokens, a, {}), rounded = model.loss(tokens, b, half);
    // The logits are about 1 after two bfloat16 layers (8 bits), so their error is a few times 2^-8.
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
  const LanguageModel model(testing::three_experts(), 1);
  Memory memory;
  EXPECT_THROW(model.logits(random_tokens(1, 9, 23), memory, {}), Error);
  ModelOptions other = testing::three_experts();
  other.kind = config::ModelKind::vision;
  EXPECT_THROW(LanguageModel(other, 1), UserError);
}

}  // namespace headroom::models::language_model_test
