#include "training/tasks/translation/translation.h"

#include <cmath>

#include "headroom/decode/generate.h"
#include "small_classes.h"
#include "training/tasks/translation/scores.h"

namespace headroom::tasks::translation_test {

Figures figures_of(const Evaluation& evaluation) {
  return translation().figures_of(evaluation.sums);
}

// Makes pairs whose target is a word-by-word translation of the source.
std::string pairs_of_words(int n, std::uint64_t seed) {
  constexpr std::pair<const char*, const char*> kWords[] = {{"eins", "one"}, {"zwei", "two"},  {"drei", "three"},
                                                            {"rot", "red"},  {"blau", "blue"}, {"Haus", "house"}};
  Random random(seed);
  std::string text;
  for (int i = 0; i < n; ++i) {
    std::string source, target;
    for (std::uint64_t words = 1 + random.below(6); words > 0; --words) {
      const auto& [german, english] = kWords[random.below(std::size(kWords))];
      source += std::string(source.empty() ? "" : " ") + german;
      target += std::string(target.empty() ? "" : " ") + english;
    }
    text += source + "\t" + target + "\n";
  }
  return text;
}

class TranslationTest : public ::testing::Test {
 protected:
  TranslationTest() {
    write_text_file(folder_ / "train.tsv", pairs_of_words(300, 1));
    write_text_file(folder_ / "validation.tsv", pairs_of_words(40, 2) + "eins " + std::string(200, 'x') + "\tone\n");
    config_.data.train = {(folder_ / "train.tsv").string()};
    config_.data.validation = {(folder_ / "validation.tsv").string()};
    config_.train.label_smoothing = 0.1;
  }
  TaskData open() const { return translation().open(config_, folder_ / "cache"); }

  tiny::Folder folder_;
  config::Config config_ = small_classes::translation_config();
};

TEST_F(TranslationTest, BatchesAreTheModelsInputs) {
  config_.train.batch_tokens = 60;
  const TaskData data = open();
  const std::int64_t begin = data.tokenizer->begin_id(), end = data.tokenizer->end_id();
  const models::EncoderDecoder model(config_.model, 1);
  for (int i = 0; i < 50; ++i) {
    const models::Batch batch = data.training->next();
    const at::Tensor source = batch.at("source"), target = batch.at("target"), next = batch.at("next");
    EXPECT_LE(std::max(source.numel(), target.numel()), 60);
    EXPECT_LE(batch.rows(), 8);
    EXPECT_EQ(batch.label_smoothing, 0.1);
    EXPECT_TRUE(target.select(1, 0).eq(begin).all().item<bool>());
    const at::Tensor counted = next.ge(0);
    EXPECT_EQ(counted.sum().item<std::int64_t>(), batch.n_targets());
    EXPECT_TRUE(next.eq(end).sum(1).eq(1).all().item<bool>());
    EXPECT_TRUE(
        at::equal(next.narrow(1, 0, next.size(1) - 1).masked_select(next.narrow(1, 1, next.size(1) - 1).ge(0)),
                  target.narrow(1, 1, next.size(1) - 1).masked_select(next.narrow(1, 1, next.size(1) - 1).ge(0))));
    if (const at::Tensor valid = batch.find("valid_target"); valid.defined()) {
      EXPECT_TRUE(at::equal(valid, counted));
    }
    const at::Tensor valid = batch.find("valid_source");
    const std::int64_t read = valid.defined() ? valid.sum().item<std::int64_t>() : source.numel();
    EXPECT_EQ(batch.tokens, read + batch.n_targets());
    models::Memory none;
    EXPECT_TRUE(std::isfinite(model.loss(batch, none, {}).cross_entropy.item<double>()));
  }
}

TEST_F(TranslationTest, TheLossIsTheMeanOverTargetTokensWhateverTheBatch) {
  const TaskData data = open();
  const models::EncoderDecoder model(config_.model, 1, at::kDouble);
  const Evaluation one = data.validation->evaluate(model, {.batch_size = 1});
  const auto pairs = data::read_pairs({.source = config_.data.validation, .target = {}}, config_.data);
  ASSERT_EQ(pairs.size(), 41U);  // the last one is too long
  double sum = 0.0;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i + 1 < pairs.size(); ++i) {
    std::vector<std::int64_t> source, target = {data.tokenizer->begin_id()};
    for (const std::int32_t id : data.tokenizer->encode(pairs[i].source)) {
      source.push_back(id);
    }
    source.push_back(data.tokenizer->end_id());
    for (const std::int32_t id : data.tokenizer->encode(pairs[i].target)) {
      target.push_back(id);
    }
    std::vector<std::int64_t> next(target.begin() + 1, target.end());
    next.push_back(data.tokenizer->end_id());
    const at::Tensor logits =
        model.logits({.source = at::tensor(source).unsqueeze(0), .target = at::tensor(target).unsqueeze(0)}, {});
    sum += at::cross_entropy_loss(logits[0], at::tensor(next), {}, at::Reduction::Sum).item<double>();
    tokens += std::ssize(next);
  }
  EXPECT_EQ(one.predictions(), tokens);
  EXPECT_NEAR(figures_of(one).at("loss"), sum / static_cast<double>(tokens), 1e-9);
  EXPECT_NEAR(figures_of(one).at("perplexity"), std::exp(figures_of(one).at("loss")), 1e-9);
  const Evaluation many = data.validation->evaluate(model, {.batch_size = 16});
  EXPECT_NEAR(figures_of(many).at("loss"), figures_of(one).at("loss"), 1e-9);
  EXPECT_EQ(figures_of(many).at("bleu"), figures_of(one).at("bleu"));
  EXPECT_EQ(many.predictions(), one.predictions());
  const Evaluation fitted = data.validation->evaluate(model, {.batch_size = 1 << 20, .batch_tokens = 90});
  EXPECT_NEAR(figures_of(fitted).at("loss"), figures_of(one).at("loss"), 1e-9);
  EXPECT_EQ(figures_of(fitted).at("bleu"), figures_of(one).at("bleu"));
  const Evaluation part = data.validation->evaluate(model, {.batch_size = 16, .most_tokens = 100});
  EXPECT_LE(part.predictions(), 100);
  EXPECT_GT(part.predictions(), 50);
}

TEST_F(TranslationTest, APartHasShortAndLongPairsOfAFileSortedByLength) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += i < 20 ? "eins\tone\n" : "rot blau rot blau rot\tred blue red blue red\n";
  }
  write_text_file(folder_ / "validation.tsv", text);
  const TaskData data = open();
  const std::int64_t all = data.validation->evaluate(models::EncoderDecoder(config_.model, 1), {}).predictions();
  EXPECT_NEAR(data.validation->rows(config_, all / 2) / data.validation->rows(config_, 0), 0.5, 0.03)
      << "half of the predictions are in half of the pairs";
}

// The part would be the middle pair, which is too long for the model.
TEST_F(TranslationTest, APartHasOnlyPairsThatFit) {
  write_text_file(folder_ / "validation.tsv", "eins\tone\n" + std::string(200, 'x') + "\tone\nzwei\ttwo\n");
  const TaskData data = open();
  const models::EncoderDecoder model(config_.model, 1);
  const std::int64_t all = data.validation->evaluate(model, {}).predictions();
  const std::int64_t part = data.validation->evaluate(model, {.most_tokens = 1}).predictions();
  EXPECT_GT(part, 0);
  EXPECT_LT(part, all);
  EXPECT_EQ(data.validation->rows(config_, all), data.validation->rows(config_, 0)) << "the limit holds all that fit";
}

TEST_F(TranslationTest, EachSideMayHaveItsOwnVocabulary) {
  config_.model.source_vocabulary_size = 285;
  config_.model.vocabulary_size = config_.tokenizer.vocabulary_size = 278;
  const TaskData data = open();
  const tokenizers::Tokenizer &sources = data.tokenizer->for_sources(), &targets = data.tokenizer->for_targets();
  EXPECT_EQ(sources.vocabulary_size(), 285);
  EXPECT_EQ(targets.vocabulary_size(), 278);
  EXPECT_LT(sources.encode("eins zwei drei").size(), targets.encode("eins zwei drei").size());
  EXPECT_GT(sources.encode("one two three").size(), targets.encode("one two three").size());
  const models::EncoderDecoder model(config_.model, 1);
  EXPECT_EQ(model.parameters().at("encoder.embed").sizes(), at::IntArrayRef({285, 24}));
  EXPECT_EQ(model.parameters().at("embed").sizes(), at::IntArrayRef({278, 24}));
  const auto text_of = [](const tokenizers::Tokenizer& tokenizer, const at::Tensor& row) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < row.numel(); ++i) {
      ids.push_back(static_cast<std::int32_t>(row[i].item<std::int64_t>()));
    }
    return tokenizer.decode(ids);
  };
  const std::string pairs = read_text_file(folder_ / "train.tsv");
  for (int i = 0; i < 5; ++i) {
    const models::Batch batch = data.training->next();
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      const std::string pair =
          text_of(sources, batch.at("source")[row]) + "\t" + text_of(targets, batch.at("target")[row]);
      EXPECT_HAS(pairs, pair + "\n");
    }
  }
  EXPECT_TRUE(std::isfinite(figures_of(data.validation->evaluate(model, {.batch_size = 8})).at("bleu")));
  config_.model.source_vocabulary_size = 0;
  const models::EncoderDecoder sharing(config_.model, 1);
  EXPECT_HAS(user_error_of([&] { data.validation->evaluate(sharing, {}); }),
             "has 285 ids for sources alone, but model.source_vocabulary_size is 0");
}

TEST_F(TranslationTest, BleuMatchesItsTranslations) {
  const TaskData data = open();
  const models::EncoderDecoder model(config_.model, 2, at::kDouble);
  const auto pairs = data::read_pairs({.source = config_.data.validation, .target = {}}, config_.data);
  std::vector<std::string> sources, references;
  for (const data::TextPair& pair : pairs) {
    sources.push_back(pair.source);
    references.push_back(pair.target);
  }
  const Translations all =
      translate(model, *data.tokenizer, sources, config_.decoding, {.batch_size = 7, .context = {}});
  const std::vector<std::string>& translations = all.texts;
  ASSERT_EQ(translations.size(), sources.size());
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Translations one = translate(model, *data.tokenizer, {sources[i]}, config_.decoding, {});
    EXPECT_EQ(one.texts, std::vector<std::string>{translations[i]});
    tokens += one.tokens;
  }
  EXPECT_EQ(all.tokens, tokens);
  EXPECT_GT(tokens, std::ssize(sources));
  const Evaluation result = data.validation->evaluate(model, {});
  EXPECT_EQ(figures_of(result).at("bleu"), bleu_of(count_bleu(translations, references, BleuTokens::mteval_13a)));
  EXPECT_EQ(headline(translation().figures()).name, "bleu");
}

TEST_F(TranslationTest, MismatchedInputsAreRefused) {
  const auto complaint = [&] { return user_error_of([&] { open(); }); };
  config_.model.vocabulary_size = 281;
  EXPECT_HAS(complaint(), "model.vocabulary_size: must be 280");
  config_.tokenizer.kind = config::TokenizerKind::words;
  config_.tokenizer.vocabulary_size = 0;
  config_.vocabulary_follows_tokenizer = true;
  EXPECT_TRUE(complaint().starts_with("tokenizer: ")) << complaint();
  config_.data.train.clear();
  EXPECT_HAS(complaint(), "data.train");
}

}  // namespace headroom::tasks::translation_test
