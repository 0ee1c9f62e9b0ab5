// Tests log-probabilities of parts of sequences.
#include "training/tasks/language/scoring.h"

#include <gtest/gtest.h>

#include "byte_scores.h"
#include "headroom/decode/engine.h"
#include "headroom/models/compute.h"
#include "training/tasks/language/language_modelling.h"

namespace headroom::tasks::scoring_test {

using namespace byte_scores;

TEST(Score, EqualsSeparatePasses) {
  const auto tokenizer = tiny::bytes_tokenizer();
  for (const std::int64_t memory : {0, 8}) {
    const models::LanguageModel model(model_options(memory), 5);
    std::vector<std::pair<std::string, std::string>> texts;
    std::vector<Sequence> sequences;
    for (std::uint64_t i = 1; i <= 13; ++i) {
      const std::string context =
          tiny::text(3 + 9 * i, i);  // without its line end, which would belong to the continuation
      texts.emplace_back(context.substr(0, context.find_last_not_of(" \n") + 1), tiny::text(2 + i % 5, 100 + i));
      sequences.push_back(to_sequence(*tokenizer, texts.back().first, texts.back().second, "test"));
    }
    // Greedy decoding generates this continuation.
    std::string greedy;
    for (int byte = 0; greedy.size() < 2; ++byte) {
      const std::string longer = greedy + static_cast<char>(byte);
      if (by_definition(model, "the head", longer).likeliest) {
        greedy = longer;
        byte = -1;
      }
    }
    texts.emplace_back("the head", greedy);
    sequences.push_back(to_sequence(*tokenizer, "the head", greedy, "test"));
    for (const std::int64_t batch : {1, 4, 100}) {
      const Scores scores = score(model, sequences, {.batch_size = batch}, "test");
      EXPECT_TRUE(scores.complete);
      EXPECT_EQ(scores.truncated, memory > 0 ? 0 : 7);
      for (std::size_t i = 0; i < texts.size(); ++i) {
        const SpanScore expected = by_definition(model, texts[i].first, texts[i].second);
        ASSERT_EQ(scores.spans[i].size(), 1U);
        EXPECT_EQ(scores.spans[i][0].tokens, expected.tokens);
        EXPECT_EQ(scores.spans[i][0].likeliest, expected.likeliest);
        EXPECT_TRUE(scores.spans[i][0].likeliest || i + 1 < texts.size());
        // The bound covers the rounding of up to six float32 log-probabilities of about 5.5.
        EXPECT_NEAR(scores.spans[i][0].log_probability, expected.log_probability, 2e-5)
            << i << " with memory " << memory << ", batch " << batch;
      }
    }
  }
}

// Returns the log-probability of the scored tokens of a sequence, which an engine reads as a prompt.
double by_engine(const models::LanguageModel& model, const Sequence& sequence, std::int64_t prompt_chunk,
                 const nn::Context& context = {}) {
  decode::Request request{.prompt = {sequence.tokens.begin(), sequence.tokens.end()}, .max_tokens = 0};
  request.echo = true;
  request.logprobs = 0;
  double sum = 0.0;
  std::int64_t place = 0;
  decode::Engine engine(model, {.prompt_chunk = prompt_chunk, .context = context});
  engine.add(
      request,
      [&](const decode::TokenEvent& event) {
        const TokenSpan& span = sequence.scored.front();
        sum += span.begin <= place && place < span.end ? event.logprob : 0.0;
        ++place;
        return true;
      },
      [](const decode::Ending&) {});
  while (engine.step()) {
  }
  return sum;
}

// Scores must be the same in any batch, and as a server computes them from prompts that it reads in chunks. The model
// and the texts are large enough for operators to divide their work among threads.
TEST(Score, ThreadsBatchesAndChunksKeepTheBitsInBothPrecisions) {
  const int before = at::get_num_threads();
  config::ModelOptions options = tiny::changed(model_options(0), "", "d_model=80 attention.d_head=20 mlp.d_hidden=150");
  const tiny::Folder folder;
  const auto text = tiny::token_file(folder, "text", tiny::text(3000));
  std::vector<Sequence> sequences;
  for (std::uint64_t i = 1; i <= 9; ++i) {
    sequences.push_back(
        to_sequence(*tiny::bytes_tokenizer(), tiny::text(1 + 15 * i, i), tiny::text(1 + i, 100 + i), "test"));
  }
  for (const auto& [precision, memory] :
       {std::pair(config::Precision::fp32, 0), {config::Precision::bf16, 0}, {config::Precision::fp32, 40}}) {
    options.memory_length = memory;
    options.context_length = memory > 0 ? memory : 160;  // all texts fit; with memory, longer ones have several chunks
    models::LanguageModel model(options, 5);
    config::TrainOptions train;
    train.precision = precision;
    const nn::Context context = models::make_context(train, at::kCPU);
    if (context.compute_dtype) {
      model.parameters().cache_weights_in(*context.compute_dtype);
    }
    const auto results = [&](int threads, std::int64_t batch, std::int64_t chunk) {
      at::set_num_threads(threads);
      std::vector<double> all;
      for (const auto& spans : score(model, sequences, {.batch_size = batch, .context = context}, "test").spans) {
        all.push_back(spans.front().log_probability);
      }
      for (const Sequence& sequence : sequences) {
        all.push_back(by_engine(model, sequence, chunk, context));
      }
      return std::pair(all, evaluate_text(model, text, {.batch_size = batch, .context = context}).sums);
    };
    EXPECT_TRUE(results(3, 4, 7) == results(1, 1, 128)) << config::name_of(precision) << ", " << memory;
  }
  at::set_num_threads(before);
}

TEST(Score, EqualSequencesGetEqualScores) {
  const models::LanguageModel model(model_options(0), 5);
  const auto tokenizer = tiny::bytes_tokenizer();
  const std::string context = "a text that all of them begin with";
  std::vector<Sequence> sequences;
  for (std::uint64_t i = 0; i < 7; ++i) {
    const std::string other = tiny::text(3 + i, 50 + i);
    sequences.push_back(to_sequence(*tokenizer, context, "same", "test"));
    sequences.push_back(to_sequence(*tokenizer, context, other, "test"));
  }
  sequences.push_back({.tokens = sequences[0].tokens, .scored = {{1, 5}}});  // the same text, other spans
  for (const std::int64_t batch : {1, 2, 3, 5, 100}) {
    const Scores scores = score(model, sequences, {.batch_size = batch}, "test");
    EXPECT_EQ(scores.spans.back().front().tokens, 4);
    EXPECT_NE(scores.spans.back().front().log_probability, scores.spans[0][0].log_probability);
    std::int64_t read = std::ssize(sequences[0].tokens) - 1 + std::ssize(sequences.back().tokens) - 1;
    for (std::size_t i = 0; i < 7; ++i) {
      ASSERT_EQ(scores.spans[2 * i].size(), 1U);
      EXPECT_EQ(scores.spans[2 * i][0].log_probability, scores.spans[0][0].log_probability) << batch;
      EXPECT_EQ(scores.spans[2 * i][0].tokens, 4);
      read += std::ssize(sequences[2 * i + 1].tokens) - 1;
    }
    EXPECT_EQ(scores.tokens, read) << "equal ones are read once";
  }
}

TEST(Score, KeepsSpansApart) {
  const models::LanguageModel model(model_options(0), 5);
  const auto tokenizer = tiny::bytes_tokenizer();
  const Sequence whole{.tokens = tokenizer->encode("\nhead room"), .scored = {{1, 5}, {6, 10}}};
  const Scores scores = score(model, {whole}, {}, "test");
  ASSERT_EQ(scores.spans[0].size(), 2U);
  EXPECT_NEAR(scores.spans[0][0].log_probability, by_definition(model, "", "head").log_probability, 1e-5);
  EXPECT_NEAR(scores.spans[0][1].log_probability, by_definition(model, "head ", "room").log_probability, 1e-5);
}

TEST(Score, ATokenAcrossTheBoundaryBelongsToTheContinuation) {
  const auto words = tokenizers::restore_tokenizer(config::TokenizerKind::words, "<unk>\n<eos>\na\nbc\nb\n", "test");
  const Sequence sequence = to_sequence(*words, "a b", "c", "test");
  EXPECT_EQ(sequence.tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(sequence.scored.front().begin, 2);
  EXPECT_EQ(sequence.scored.front().end, 3);
  EXPECT_THROW(to_sequence(*words, "a b", " ", "test"), UserError);
}

TEST(Score, ATieIsNotCorrect) {
  models::LanguageModel model(model_options(0), 5);
  for (const nn::Parameter& p : model.parameters().all()) {
    p.tensor.detach().zero_();  // all tokens are equally likely
  }
  const auto tokenizer = tiny::bytes_tokenizer();
  const Scores scores = score(model, {to_sequence(*tokenizer, "the head", " rests", "test")}, {}, "test");
  EXPECT_FALSE(scores.spans[0][0].likeliest);
}

TEST(Sequences, StartWithTheirPrefix) {
  const auto bytes = tiny::bytes_tokenizer();
  const auto sequence = [&](const Prefix& prefix, const std::string& context, const std::string& continuation) {
    return to_sequence(*bytes, context, continuation, "f:1", prefix);
  };
  const auto scored = [](const Sequence& made) {
    return std::string(made.tokens.begin() + made.scored.front().begin, made.tokens.begin() + made.scored.front().end);
  };
  const auto text = [](const Sequence& made) { return std::string(made.tokens.begin(), made.tokens.end()); };
  const Prefix nothing{.kind = PrefixKind::none, .bos = {'^'}, .stand_in = '$'},
      bos{.kind = PrefixKind::bos, .bos = {'^'}};
  const struct {
    Prefix prefix;
    const char *context, *continuation, *text, *scored;
  } all[] = {{{}, "the", " head", "\nthe head", " head"},
             {nothing, "the", " head", "the head", " head"},
             {bos, "the", " head", "^the head", " head"},
             {bos, "^the", " head", "^the head", " head"},  // the context already begins with ^
             {{}, "", "head", "\nhead", "head"},
             {nothing, "", "head", "$head", "head"},  // the first token needs a predecessor
             {nothing, "", "$head", "$head", "head"},
             {bos, "", "head", "^head", "head"},
             {{.kind = PrefixKind::none}, "", "head", "head", "ead"},
             // Trailing blanks of the context belong to the continuation.
             {nothing, "the \t\xe3\x80\x80\xc2\xa0", " head", "the \t\xe3\x80\x80\xc2\xa0 head",
              " \t\xe3\x80\x80\xc2\xa0 head"}};
  for (const auto& one : all) {
    const Sequence made = sequence(one.prefix, one.context, one.continuation);
    EXPECT_EQ(text(made), one.text);
    EXPECT_EQ(scored(made), one.scored) << one.text;
  }
  EXPECT_THROW(sequence({.kind = PrefixKind::none}, "", "a"), UserError);
}

}  // namespace headroom::tasks::scoring_test
