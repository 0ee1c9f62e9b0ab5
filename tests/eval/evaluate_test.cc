#include "headroom/eval/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "eval/tiny.h"
#include "headroom/core/error.h"

namespace headroom::eval {
namespace evaluate_test {

struct Sum {
  double cross_entropy = 0.0;
  std::int64_t tokens = 0;
};

// One stream, token by token as the definition says it: chunks of T with the memory of the chunk before.
Sum by_definition(const models::LanguageModel& model, const std::vector<std::int32_t>& ids) {
  const at::NoGradGuard no_grad;
  const std::int64_t length = model.options().context_length;
  const auto last = static_cast<std::int64_t>(ids.size()) - 1;
  const at::Tensor all = at::tensor(at::ArrayRef<std::int32_t>(ids), at::kInt).to(at::kLong);
  models::Memory memory;
  Sum sum;
  for (std::int64_t begin = 0; begin < last; begin += length) {
    const std::int64_t count = std::min(length, last - begin);
    const at::Tensor logits = model.logits(all.narrow(0, begin, count).unsqueeze(0), memory, {});
    const at::Tensor logp = logits.to(at::kDouble).log_softmax(-1)[0];
    for (std::int64_t t = 0; t < count; ++t) {
      sum.cross_entropy -= logp[t][ids[static_cast<std::size_t>(begin + t + 1)]].item<double>();
      ++sum.tokens;
    }
  }
  return sum;
}

TEST(Evaluate, IsTheMeanCrossEntropyOfOneStream) {
  const tiny::Folder folder;
  const std::string text = tiny::text(203);  // not a multiple of the context length
  const auto tokens = tiny::token_file(folder, "text", text);
  const models::LanguageModel model(tiny::config().model, 5);
  const Sum expected = by_definition(model, tiny::bytes_tokenizer()->encode(text));

  const Evaluation result = evaluate(model, tokens, {.batch_size = 1});
  const double loss = expected.cross_entropy / static_cast<double>(expected.tokens);
  EXPECT_TRUE(result.complete);
  EXPECT_EQ(result.tokens, 202);
  EXPECT_EQ(result.tokens, expected.tokens);
  EXPECT_NEAR(result.loss, loss, 1e-5);
  EXPECT_NEAR(result.perplexity, std::exp(loss), 1e-2);
  EXPECT_NEAR(result.bits_per_byte, loss / std::numbers::ln2, 1e-5) << "a byte a token";
}

TEST(Evaluate, PredictsAllButTheFirstTokenOfEachStream) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(1001));
  const models::LanguageModel model(tiny::config().model, 5);
  for (const std::int64_t batch : {1, 3, 7}) {
    const Evaluation result = evaluate(model, tokens, {.batch_size = batch});
    EXPECT_EQ(result.tokens, 1001 - batch) << batch;
    EXPECT_NEAR(result.bits_per_byte, result.loss / std::numbers::ln2, 1e-6);
  }
}

TEST(Evaluate, CutsAShortFileIntoFewerStreams) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(70));  // 8.75 chunks: two streams of four
  const models::LanguageModel model(tiny::config().model, 5);
  EXPECT_EQ(evaluate(model, tokens, {.batch_size = 16}).tokens, 68);
}

TEST(Evaluate, LeavesDropoutOut) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(300));
  const models::LanguageModel model(tiny::config().model, 5);
  EvaluateOptions options;
  options.context.training = true;  // without random numbers a dropout would fail
  EXPECT_EQ(evaluate(model, tokens, options).loss, evaluate(model, tokens, {}).loss);
}

TEST(Evaluate, RefusesAnotherVocabulary) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(300));
  config::ModelOptions options = tiny::config().model;
  options.vocabulary_size = 300;
  const models::LanguageModel model(options, 5);
  EXPECT_THROW(evaluate(model, tokens, {}), MisuseError);
}

TEST(Evaluate, RefusesAFileTooShortToPredictAnything) {
  const tiny::Folder folder;
  const models::LanguageModel model(tiny::config().model, 5);
  EXPECT_THROW(evaluate(model, tiny::token_file(folder, "text", "a"), {.batch_size = 1}), MisuseError);
}

}  // namespace evaluate_test
}  // namespace headroom::eval
