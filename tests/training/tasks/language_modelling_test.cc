#include "training/tasks/language/language_modelling.h"

#include <cmath>
#include <numbers>

#include "folder_test.h"
#include "tiny/files.h"
#include "training/tasks/evaluation_loop.h"

namespace headroom::tasks::language_modelling_test {

Figures figures_of(const Evaluation& evaluation) {
  return language_modelling().figures_of(evaluation.sums);
}

struct Sum {
  double cross_entropy = 0.0;
  std::int64_t tokens = 0;
};

// By definition, the text is one stream of chunks of T tokens, each with the memory of the previous chunk.
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

// The result does not depend on the number of parallel streams.
TEST(EvaluateText, IsTheMeanCrossEntropyOfOneStream) {
  const tiny::Folder folder;
  const std::string text = tiny::text(1003);  // not a multiple of the context length
  const auto tokens = tiny::token_file(folder, "text", text);
  for (const std::int64_t memory : {0, 8}) {
    config::ModelOptions options = tiny::config().model;
    options.memory_length = memory;
    const models::LanguageModel model(options, 5);
    const Sum expected = by_definition(model, tiny::bytes_tokenizer()->encode(text));
    const Evaluation alone = evaluate_text(model, tokens, {.batch_size = 1});
    const double loss = expected.cross_entropy / static_cast<double>(expected.tokens);
    EXPECT_TRUE(alone.complete);
    EXPECT_EQ(alone.predictions(), 1002);
    EXPECT_EQ(alone.predictions(), expected.tokens);
    EXPECT_NEAR(figures_of(alone).at("loss"), loss, 1e-5);
    EXPECT_NEAR(figures_of(alone).at("perplexity"), std::exp(loss), 1e-2);
    EXPECT_NEAR(figures_of(alone).at("bits_per_byte"), loss / std::numbers::ln2, 1e-5) << "a byte a token";
    for (const std::int64_t batch : {2, 3, 7, 64, 5000}) {
      EXPECT_EQ(evaluate_text(model, tokens, {.batch_size = batch}).sums, alone.sums) << batch << ", " << memory;
    }
  }
}

// Returns the loss of each chunk in a whole evaluation.
std::map<std::int64_t, Sums> chunk_sums(const models::LanguageModel& model, const data::TokenFile& tokens) {
  const at::NoGradGuard no_grad;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), ids.data());
  const at::Tensor all = at::tensor(at::ArrayRef<std::int32_t>(ids), at::kInt).to(at::kLong);
  const std::int64_t length = model.options().context_length, last = tokens.size() - 1;
  models::Memory memory;
  std::map<std::int64_t, Sums> sums;
  for (std::int64_t begin = 0; begin < last; begin += length) {
    const std::int64_t count = std::min(length, last - begin);
    const at::Tensor logits = model.logits(all.narrow(0, begin, count).unsqueeze(0), memory, {});
    const at::Tensor right = all.narrow(0, begin + 1, count).unsqueeze(1);
    sums[begin / length] = sums_of_losses(-logits.to(at::kDouble).log_softmax(-1)[0].gather(1, right));
  }
  return sums;
}

TEST(EvaluateText, APartHasTheLossesOfItsChunksInTheWholeText) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(4003));
  const auto check = [&](std::int64_t memory, const std::vector<std::int64_t>& cutoffs) {
    config::ModelOptions options = tiny::config().model;
    options.memory_length = memory;
    options.adaptive_cutoffs = cutoffs;
    const models::LanguageModel model(options, 5);
    const std::map<std::int64_t, Sums> chunks = chunk_sums(model, *tokens);
    for (const std::int64_t most : {8, 80, 1600, 3200}) {
      data::EvaluationPass pass(tokens, {.length = 8, .warming = memory > 0 ? 2 : 0, .most_predictions = most});
      Sums expected;
      for (data::EvaluationBatch batch; pass.next(batch);) {
        for (std::size_t row = 0; row < batch.chunks.size(); ++row) {
          if (batch.counted[row] > 0) {
            add(expected, chunks.at(batch.chunks[row]));
          }
        }
      }
      const Evaluation alone = evaluate_text(model, tokens, {.batch_size = 1, .most_tokens = most});
      EXPECT_EQ(alone.predictions(), most);
      EXPECT_NEAR(figures_of(alone).at("loss"), mean(expected, kCrossEntropy), 1e-5) << memory << ", " << most;
      for (const std::int64_t batch : {3, 64, 5000}) {
        EXPECT_EQ(evaluate_text(model, tokens, {.batch_size = batch, .most_tokens = most}).sums, alone.sums)
            << memory << ", " << most << ", " << batch;
      }
      EXPECT_EQ(evaluation_rows(tokens, options, most), static_cast<double>(pass.chunks()));
    }
  };
  check(0, {});
  check(8, {});
  check(8, {50, 150});
}

// The model predicts only that a word is unknown, so its bytes count as uniform guesses.
TEST(EvaluateText, BitsPerByteCountUnknownWords) {
  const tiny::Folder folder;
  const auto words = tokenizers::restore_tokenizer(config::TokenizerKind::words, "<unk>\n<eos>\nroom\nhead\n", "test");
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text += "head room doors\n";
  }
  std::ofstream(folder / "text.txt") << text;
  data::write_token_file(*data::open_text({(folder / "text.txt").string()}, {}), *words, folder / "text.tokens");
  const auto tokens = std::make_shared<const data::TokenFile>(folder / "text.tokens");
  ASSERT_EQ(tokens->size(), 40);
  config::ModelOptions options = tiny::config().model;
  options.vocabulary_size = 4;
  const Evaluation result = evaluate_text(models::LanguageModel(options, 5), tokens, {});
  EXPECT_DOUBLE_EQ(figures_of(result).at("unknown_share"), 0.25);
  const double share = 39.0 / 40.0, spelling = 8.0 * 5.0 * 10.0 * share;
  const double bits = figures_of(result).at("loss") * 39.0 / std::numbers::ln2 + spelling;
  EXPECT_NEAR(figures_of(result).at("bits_per_byte"), bits / (static_cast<double>(text.size()) * share), 1e-6);
  EXPECT_GT(figures_of(result).at("bits_per_byte"), 40.0 / 16.0);
}

// White space that the tokenizer drops is not predicted, so its bytes do not count.
TEST(EvaluateText, BitsPerByteCountOnlyBytesThatArePredicted) {
  const tiny::Folder folder;
  std::string text, plain;
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("{}room  of {}\n", std::string(static_cast<std::size_t>(4 * (i % 3)), ' '), "heads");
    plain += "room of heads\n";
  }
  std::ofstream(folder / "text.txt") << text;
  std::ofstream(folder / "plain.txt") << plain;
  for (const config::TokenizerOptions& options :
       {config::TokenizerOptions{
            .kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 275, .keep_whitespace = false},
        config::TokenizerOptions{.kind = config::TokenizerKind::words, .vocabulary_size = 0}}) {
    const auto source = data::open_text({(folder / "text.txt").string()}, {});
    const auto tokenizer = tokenizers::train_tokenizer(options, *source);
    const auto tokens_of = [&](const char* name) {
      data::write_token_file(*data::open_text({(folder / name).string()}, {}), *tokenizer, folder / "text.tokens");
      return std::make_shared<const data::TokenFile>(folder / "text.tokens", name);
    };
    const auto tokens = tokens_of("text.txt");
    EXPECT_EQ(tokens->text_bytes(), std::ssize(text));
    EXPECT_EQ(tokens->decoded_bytes(), std::ssize(plain));
    config::ModelOptions model_options = tiny::config().model;
    model_options.vocabulary_size = tokenizer->vocabulary_size();
    const models::LanguageModel model(model_options, 5);
    const double indented = figures_of(evaluate_text(model, tokens, {})).at("bits_per_byte");
    EXPECT_EQ(indented, figures_of(evaluate_text(model, tokens_of("plain.txt"), {})).at("bits_per_byte"));
  }
}

TEST(EvaluateText, WindowsGiveEveryPredictionTheContextThereIs) {
  const at::NoGradGuard no_grad;
  const tiny::Folder folder;
  const std::string text = tiny::text(61);
  const auto tokens = tiny::token_file(folder, "text", text);
  config::ModelOptions options = tiny::config().model;
  options.memory_length = 0;
  const models::LanguageModel model(options, 5);
  const std::vector<std::int32_t> ids = tiny::bytes_tokenizer()->encode(text);
  const at::Tensor all = at::tensor(at::ArrayRef<std::int32_t>(ids), at::kInt).to(at::kLong).unsqueeze(0);
  const std::int64_t length = options.context_length, last = std::ssize(ids) - 1;
  for (const std::int64_t stride : {1, 3, 8}) {
    double sum = 0.0;
    for (std::int64_t place = 1; place <= last; ++place) {
      // The window that predicts the token: the first, or the one whose last `stride` predictions include it.
      const std::int64_t over = std::max<std::int64_t>(0, place - length);
      const std::int64_t end = std::min(length + (over + stride - 1) / stride * stride, last);
      models::Memory memory;
      const at::Tensor logits = model.logits(all.narrow(1, end - length, length), memory, {})[0];
      sum -= logits.to(at::kDouble)
                 .log_softmax(-1)[place - 1 - (end - length)][all[0][place].item<std::int64_t>()]
                 .item<double>();
    }
    const Evaluation alone = evaluate_text(model, tokens, {.batch_size = 1, .stride = stride});
    for (const std::int64_t batch : {1, 5, 100}) {
      const Evaluation result = evaluate_text(model, tokens, {.batch_size = batch, .stride = stride});
      EXPECT_EQ(result.sums, alone.sums) << stride << ", batch " << batch;
      EXPECT_EQ(result.predictions(), last);
      EXPECT_NEAR(figures_of(result).at("loss"), sum / static_cast<double>(last), 1e-5)
          << stride << ", batch " << batch;
    }
  }
  EXPECT_THROW(evaluate_text(model, tokens, {.most_tokens = 20, .stride = 1}), Error);
  EXPECT_THROW(evaluate_text(model, tokens, {.stride = 9}), UserError);
  options.memory_length = 8;
  EXPECT_THROW(evaluate_text(models::LanguageModel(options, 5), tokens, {.stride = 1}), UserError);
}

TEST(EvaluateText, DoesNotApplyDropout) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(300));
  const models::LanguageModel model(tiny::config().model, 5);
  EvaluateOptions options;
  options.context.training = true;  // dropout would fail without random numbers
  EXPECT_EQ(figures_of(evaluate_text(model, tokens, options)), figures_of(evaluate_text(model, tokens, {})));
}

TEST(EvaluateText, RefusesAnotherVocabulary) {
  const tiny::Folder folder;
  const auto tokens = tiny::token_file(folder, "text", tiny::text(300));
  config::ModelOptions options = tiny::config().model;
  options.vocabulary_size = 300;
  const models::LanguageModel model(options, 5);
  EXPECT_THROW(evaluate_text(model, tokens, {}), UserError);
}

TEST(EvaluateText, RefusesAFileTooShortToPredictAnything) {
  const tiny::Folder folder;
  const models::LanguageModel model(tiny::config().model, 5);
  EXPECT_THROW(evaluate_text(model, tiny::token_file(folder, "text", "a"), {.batch_size = 1}), UserError);
}

TEST(DataIdentity, DetectsAChangedCorpus) {
  const tiny::Folder folder;
  const std::string text = tiny::text(5000);
  const std::string identity = data_identity(*tiny::token_file(folder, "a", text));
  EXPECT_EQ(data_identity(*tiny::token_file(folder, "b", text)), identity) << "the place does not matter";
  for (const std::size_t at : {std::size_t{0}, std::size_t{2500}, text.size() - 2}) {
    std::string changed = text;
    changed[at] = '#';
    EXPECT_NE(data_identity(*tiny::token_file(folder, "c", changed)), identity) << at;
  }
  const auto longer = tiny::token_file(folder, "d", text + text);
  EXPECT_NE(data_identity(*longer), identity);
}

TEST(DataIdentity, CoversALongFile) {
  const tiny::Folder folder;
  const std::string text = tiny::text(std::size_t{3} << 20);
  const std::string identity = data_identity(*tiny::token_file(folder, "a", text));
  // With another second half, some of the 64 hashed sections differ.
  const std::string other = text.substr(0, text.size() / 2) + tiny::text(text.size() - text.size() / 2, 2);
  ASSERT_EQ(other.size(), text.size());
  EXPECT_NE(data_identity(*tiny::token_file(folder, "b", other)), identity);
}

TEST(LanguageModelling, EvaluatesOnlyTokensOfTheModelsTokenizer) {
  const tiny::Folder folder;
  const config::Config config = tiny::config();
  const auto tokens = tiny::token_file(folder, "text", tiny::text(500));
  EvaluationRequest request{.config = config,
                            .tokenizer = tiny::bytes_tokenizer(),
                            .files = {tokens->path().string()},
                            .cache = folder / "cache"};
  EXPECT_FALSE(language_modelling().open_evaluation(request)->sample_prompt().empty());
  request.tokenizer = tokenizers::restore_tokenizer(config::TokenizerKind::words, "<unk>\n<eos>\nroom\n", "test");
  const std::string why = user_error_of([&] { language_modelling().open_evaluation(request); });
  EXPECT_HAS(why, tokens->tokenizer_name());
  EXPECT_HAS(why, request.tokenizer->name());
}

}  // namespace headroom::tasks::language_modelling_test
