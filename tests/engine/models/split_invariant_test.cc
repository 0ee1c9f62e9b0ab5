// Tests that a text's logits do not depend on how the text is divided into batches and pieces.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "engine/models/model_base.h"
#include "headroom/config/attention_part.h"
#include "headroom/models/language_model.h"
#include "small_models.h"

namespace headroom::models {
namespace split_invariant_test {

constexpr std::int64_t kTokens = 45, kContext = 64;

nn::Context invariant() {
  nn::Context context{.split_invariant = true};
  return context;
}

// Returns the small models with a context that holds the text, and wide ones with vectorised activations.
std::vector<std::pair<std::string, config::ModelOptions>> language_models() {
  std::vector<std::pair<std::string, config::ModelOptions>> all = testing::language_models();
  for (auto& [name, o] : all) {
    o.context_length = kContext;
  }
  for (const config::Activation activation :
       {config::Activation::gelu, config::Activation::gelu_tanh, config::Activation::silu}) {
    config::ModelOptions o = testing::three_experts();
    o.context_length = kContext;
    o.d_model = 68;
    o.mlp.d_hidden = 131;
    o.mlp.activation = activation;
    o.attention.projection = "experts";
    o.attention.gate_output = "element";
    all.emplace_back(fmt::format("wide, activation {}", static_cast<int>(activation)), o);
  }
  return all;
}

// Returns whether the model has a recurrent state, which is summed chunk by chunk.
bool sums_keys(const config::ModelOptions& options) {
  return options.attention.score == "linear" || options.attention.score->is_recurrent() ||
         std::any_of(options.layers.begin(), options.layers.end(),
                     [](auto& l) { return l.attention.contains("score"); });
}

at::Tensor in_pieces(const LanguageModel& model, std::span<const std::int64_t> tokens, std::int64_t size) {
  DecodeState state = model.start_decoding();
  std::vector<at::Tensor> parts;
  for (std::size_t i = 0; i < tokens.size(); i += static_cast<std::size_t>(size)) {
    const std::size_t n = std::min(static_cast<std::size_t>(size), tokens.size() - i);
    parts.push_back(model.decode_each({&state, tokens.subspan(i, n)}, invariant()));
  }
  return at::cat(parts);
}

TEST(SplitInvariant, ATextInABatchAndInChunks) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, options] : language_models()) {
    const LanguageModel model(options, 3);
    const at::Tensor texts = random_ids(options.vocabulary_size, {3, kTokens}, 1);
    Memory memory, none;
    const at::Tensor together = model.logits(texts, memory, invariant());
    for (std::int64_t row = 0; row < texts.size(0); ++row) {
      memory.reset();
      const at::Tensor whole = model.logits(texts.narrow(0, row, 1), memory, invariant())[0];
      EXPECT_TRUE(whole.equal(together[row])) << name << ", row " << row;
    }
    for (const std::int64_t size : {kTokens, std::int64_t{20}, std::int64_t{7}, std::int64_t{1}}) {
      const at::Tensor pieces =
          in_pieces(model, {texts.const_data_ptr<std::int64_t>(), static_cast<std::size_t>(kTokens)}, size);
      // With a single key, its rotated shift looks like a shift that all keys share.
      const bool one_shifted_key = size == 1 && name.starts_with("shifted");
      if (sums_keys(options) || one_shifted_key) {
        // Errors of a recurrent state also affect its later decays and corrections.
        const double tolerance = options.attention.score->is_recurrent() ? 1e-4 : 1e-5;
        EXPECT_LT((pieces - together[0]).abs().max().item<double>(), tolerance) << name << ", pieces of " << size;
      } else {
        EXPECT_TRUE(pieces.equal(together[0])) << name << ", pieces of " << size;
      }
    }
    // The logits of a prefix must not depend on the rest of the text.
    memory.reset();
    const at::Tensor beginning = model.logits(texts.narrow(0, 0, 1).narrow(1, 0, 3), memory, invariant())[0];
    EXPECT_TRUE(options.attention.score->is_recurrent() || beginning.equal(together[0].narrow(0, 0, 3))) << name;
  }
}

}  // namespace split_invariant_test
}  // namespace headroom::models
