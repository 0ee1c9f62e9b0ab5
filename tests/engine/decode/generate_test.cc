#include "headroom/decode/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/decode/row.h"
#include "foundation/core/text/utf8.h"
#include "tiny/files.h"

namespace headroom::decode::generate_test {

models::LanguageModel tiny_model() {
  return models::LanguageModel(tiny::config().model, 5);
}

TEST(Generate, ASeedFixesTheText) {
  const models::LanguageModel model = tiny_model();
  const auto tokenizer = tiny::bytes_tokenizer();
  const auto with_seed = [&](std::uint64_t seed) {
    return generate(model, *tokenizer, "head", {.tokens = 30, .seed = seed}).text;
  };
  EXPECT_EQ(with_seed(3), with_seed(3));
  EXPECT_NE(with_seed(3), with_seed(4));
}

TEST(Generate, StreamsWhatItReturns) {
  const models::LanguageModel model = tiny_model();
  std::string streamed;
  GenerateOptions options{.tokens = 64};
  options.on_text = [&](std::string_view text) {
    EXPECT_TRUE(is_utf8(text));
    streamed += text;
  };
  const Generation result = generate(model, *tiny::bytes_tokenizer(), "", options);
  EXPECT_EQ(streamed, result.text);
  EXPECT_TRUE(is_utf8(result.text));
  EXPECT_FALSE(result.text.empty());
  EXPECT_GT(result.tokens_per_second, 0.0);
}

TEST(Generate, BeginsAndEndsWithTheGivenTokens) {
  const models::LanguageModel model = tiny_model();
  const auto tokenizer = tiny::bytes_tokenizer();
  const GenerateOptions greedy{.tokens = 20, .temperature = 0.0};
  const std::string whole = generate(model, *tokenizer, "head", greedy).text;
  GenerateOptions begun = greedy;
  begun.begin = tokenizer->encode("h");
  EXPECT_EQ(generate(model, *tokenizer, "ead", begun).text, whole);
  GenerateOptions ended = greedy;
  for (std::int32_t id = 0; id < tokenizer->vocabulary_size(); ++id) {
    ended.ends.insert(id);
  }
  const Generation none = generate(model, *tokenizer, "head", ended);
  EXPECT_EQ(none.text, "");
  EXPECT_EQ(none.tokens, 0);
}

TEST(Generate, RefusesBadOptions) {
  const models::LanguageModel model = tiny_model();
  const auto tokenizer = tiny::bytes_tokenizer();
  EXPECT_THROW(generate(model, *tokenizer, "head", {.top_p = 1.5}), UserError);
  EXPECT_THROW(generate(model, *tokenizer, "he\xff", {}), UserError);
  config::ModelOptions other = tiny::config().model;
  other.vocabulary_size = 300;
  EXPECT_THROW(generate(models::LanguageModel(other, 1), *tokenizer, "head", {}), UserError);
}

// Returns how often each id is drawn in 4,000 draws.
std::map<std::int32_t, int> draws(const std::vector<float>& logits, const SampleOptions& options) {
  Random random(9);
  std::map<std::int32_t, int> count;
  for (int i = 0; i < 4000; ++i) {
    ++count[sample(logits, options, random)];
  }
  return count;
}

const std::vector<float> kLogits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};

TEST(Sample, FollowsTheProbabilities) {
  std::map<std::int32_t, int> count = draws(kLogits, {});
  EXPECT_NEAR(count[0], 400, 80);  // four standard deviations are 76
  EXPECT_NEAR(count[1], 1600, 124);
  EXPECT_NEAR(count[2], 800, 102);
  count = draws(kLogits, {.temperature = 0.5});  // squared and normalised: 0.01, 0.16, 0.04 and 0.09, divided by 0.3
  EXPECT_NEAR(count[1], 2133, 126);
  EXPECT_NEAR(count[0], 133, 46);
}

TEST(Sample, CutsTheTail) {
  const auto ids = [](const std::map<std::int32_t, int>& count) {
    std::set<std::int32_t> set;
    for (const auto& [id, n] : count) {
      set.insert(id);
    }
    return set;
  };
  EXPECT_EQ(ids(draws(kLogits, {.top_k = 2})), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(ids(draws(kLogits, {.top_k = 99})), (std::set<std::int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(ids(draws(kLogits, {.top_p = 0.3})), (std::set<std::int32_t>{1}));
  EXPECT_EQ(ids(draws(kLogits, {.top_p = 0.6})), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(ids(draws(kLogits, {.top_p = 0.8})), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(ids(draws(kLogits, {.top_k = 3, .top_p = 0.99})), (std::set<std::int32_t>{1, 2, 3}));
}

TEST(Sample, OfEqualsGreedyTakesTheFirst) {
  Random random(1);
  EXPECT_EQ(sample(std::vector<float>{1.0F, 2.0F, 2.0F, 0.0F}, {.temperature = 0.0}, random), 1);
}

TEST(Sample, SurvivesExtremes) {
  Random random(1);
  EXPECT_EQ(sample(std::vector<float>{-3e38F, 3e38F, 0.0F}, {.temperature = 1e-3}, random), 1);
  EXPECT_THROW(sample(std::vector<float>{0.0F, NAN}, {}, random), Error);
  EXPECT_THROW(sample(std::vector<float>{0.0F, INFINITY}, {.temperature = 0.0}, random), Error);
}

TEST(TextStream, HoldsABrokenCodePointBack) {
  const auto tokenizer = tiny::bytes_tokenizer();
  TextStream stream(*tokenizer, tokenizer->encode("x"));
  std::vector<std::string> pieces;
  const std::string text = "a\u00e9\u20ac\U0001f600z";
  for (const std::int32_t id : tokenizer->encode(text)) {
    if (std::string piece = stream.push(id); !piece.empty()) {
      pieces.push_back(piece);
    }
  }
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "\u00e9", "\u20ac", "\U0001f600", "z"}));
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, SpellsSubwordsAsTheWholeTextDoes) {
  const tiny::Folder folder;
  write_text_file(folder / "text.txt", tiny::text(20000) + "caf\u00e9 \u20ac\n");
  for (const bool keep_whitespace : {false, true}) {
    const auto source = data::open_text({(folder / "text.txt").string()}, {});
    const auto tokenizer = tokenizers::train_tokenizer(
        {.kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 300, .keep_whitespace = keep_whitespace},
        *source);
    const std::string prompt = "the head", rest = " attends to\u20ac every caf\u00e9 token \U0001f600 twice";
    const std::vector<std::int32_t> before = tokenizer->encode(prompt), all = tokenizer->encode(prompt + rest);
    ASSERT_TRUE(std::equal(before.begin(), before.end(), all.begin())) << "the prompt's tokens begin the whole's";
    TextStream stream(*tokenizer, before);
    std::string out;
    for (std::size_t i = before.size(); i < all.size(); ++i) {
      out += stream.push(all[i]);
    }
    out += stream.finish();
    EXPECT_EQ(prompt + out, tokenizer->decode(all)) << keep_whitespace;
  }
}

// A tokenizer that collapses spaces drops all spaces before a text, but none after the first token.
TEST(TextStream, SpellsRepeatedSpacesAsTheWholeTextDoes) {
  const tiny::Folder folder;
  write_text_file(folder / "text.txt", tiny::text(20000));
  const auto source = data::open_text({(folder / "text.txt").string()}, {});
  const auto tokenizer = tokenizers::train_tokenizer(
      {.kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 300, .keep_whitespace = false}, *source);
  const std::int32_t space = tokenizer->id_of("\u2581"), end = tokenizer->id_of("</s>");  // has no text
  const std::int32_t word = tokenizer->encode("the").front();
  ASSERT_TRUE(space >= 0 && end >= 0);
  ASSERT_TRUE(
      tokenizer->decode(std::vector<std::int32_t>{word, word}).starts_with(tokenizer->decode({&word, 1}) + " "));
  for (const std::vector<std::int32_t>& before : {std::vector<std::int32_t>{word}, {space}, {}}) {
    std::vector<std::int32_t> all = before;
    TextStream stream(*tokenizer, before);
    std::string out = tokenizer->decode(before);
    for (const std::int32_t id : {end, word, space, end, word, end, end, space, space, word, word}) {
      all.push_back(id);
      out += stream.push(id);
    }
    EXPECT_EQ(out + stream.finish(), tokenizer->decode(all));
  }
}

TEST(TextStream, ReplacesInvalidUtf8) {
  const auto tokenizer = tiny::bytes_tokenizer();
  TextStream stream(*tokenizer, {});
  std::string out;
  for (const char byte : std::string("a\xff\xe2\x82z\xf0\x9f")) {
    const std::vector<std::int32_t> ids = {static_cast<unsigned char>(byte)};
    out += stream.push(ids[0]);
  }
  EXPECT_EQ(out + stream.finish(), "a\ufffd\ufffd\ufffdz\ufffd\ufffd");
}

TEST(TextStream, KeepsACodePointAfterAReplacementOrABadLeadByte) {
  const tiny::Folder folder;
  write_text_file(folder / "text.txt", tiny::text(20000));
  const auto source = data::open_text({(folder / "text.txt").string()}, {});
  const auto pieces = tokenizers::train_tokenizer(
      {.kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 300, .keep_whitespace = true}, *source);
  const auto bytes = tiny::bytes_tokenizer();
  const std::pair<std::string, std::string> cases[] = {
      {"\ufffd\u20ac", "\ufffd\u20ac"},
      {"\xe2\xe2\xe2\x82\xac", "\ufffd\ufffd\u20ac"},
      {"\xf0\xf0\x9f\x98\x80", "\ufffd\U0001f600"},
      {"\ufffd\ufffd\ufffd\ufffd\u20ac", "\ufffd\ufffd\ufffd\ufffd\u20ac"}};
  for (const auto& [given, right] : cases) {
    for (const tokenizers::Tokenizer* tokenizer :
         std::initializer_list<const tokenizers::Tokenizer*>{&*bytes, &*pieces}) {
      TextStream stream(*tokenizer, {});
      std::string out;
      for (const char c : given) {
        const auto byte = static_cast<unsigned char>(c);
        out += stream.push(tokenizer == &*bytes ? byte : tokenizer->id_of(fmt::format("<0x{:02X}>", byte)));
      }
      EXPECT_EQ(out + stream.finish(), right) << tokenizer->name();
    }
  }
}

}  // namespace headroom::decode::generate_test
