// Trains byte-level BPE. The end-to-end tests compare merges and ids with the `tokenizers` package.

#include "data/text/support.h"
#include "data/tokenizers/bpe/model.h"

namespace headroom::tokenizers::bpe_training_test {

using config::TokenizerKind;

std::vector<std::string> learnt(const WordCounts& words, std::int64_t size) {
  const BpeModel model = learn_merges(words, size);
  return {model.tokens.begin() + 256, model.tokens.end()};
}

TEST(LearnMerges, TheMostFrequentPairFirst) {
  // "ab" occurs 5 times and is merged first. Then "bc" and "abc" both occur twice, and "bc" has the smaller ids.
  EXPECT_EQ(learnt({{"ab", 3}, {"abc", 2}, {"bc", 2}}, 256 + 3), (std::vector<std::string>{"ab", "bc", "abc"}));
  // Ties go to the smaller ids: '!' before 'a' before the space, which is spelled beyond Latin-1.
  EXPECT_EQ(learnt({{"a ", 1}, {"!a", 1}, {"aa", 1}}, 256 + 3), (std::vector<std::string>{"!a", "aa", "a\xc4\xa0"}));
  // Both overlapping pairs in "aaa" count, but only one of them merges.
  EXPECT_EQ(learnt({{"aaa", 2}, {"bc", 3}}, 256 + 3), (std::vector<std::string>{"aa", "bc", "aaa"}));
  EXPECT_EQ(learnt({{"ab", 1}}, 1000), (std::vector<std::string>{"ab"}));  // nothing left to merge
}

// A run of one character can be split in many ways.
TEST(LearnMerges, NoTokenAndNoPairTwice) {
  WordCounts words;
  for (std::size_t n = 1; n < 60; ++n) {
    words[std::string(n, 'a')] = static_cast<std::int64_t>(n * 7 % 13 + 1);
    words["b" + std::string(n, 'a') + "b"] = static_cast<std::int64_t>(n * 5 % 11 + 1);
  }
  const BpeModel model = learn_merges(words, 256 + 40);
  EXPECT_EQ(std::set<std::string>(model.tokens.begin(), model.tokens.end()).size(), model.tokens.size());
  std::set<std::pair<std::int32_t, std::int32_t>> pairs;
  for (const Merge& merge : model.merges) {
    EXPECT_TRUE(pairs.emplace(merge.left, merge.right).second);
    const auto at = [&](std::int32_t id) { return model.tokens[static_cast<std::size_t>(id)]; };
    EXPECT_EQ(at(merge.left) + at(merge.right), at(merge.result));
  }
}

class BpeTrainingTest : public FolderTest {
 protected:
  std::unique_ptr<Tokenizer> train(const std::string& text, std::int64_t size) const {
    return train_tokenizer({.kind = TokenizerKind::bpe, .vocabulary_size = size},
                           *data::open_text({write("train.txt", text)}, {}));
  }
};

TEST_F(BpeTrainingTest, RestoresTheTextFromFewerTokens) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text += fmt::format("The head attends, {} times;\n  d\xc3\xa9j\xc3\xa0 vu \xe6\x97\xa5\xe6\x9c\xac\n", i * 7919);
  }
  const auto tokenizer = train(text, 400);
  EXPECT_EQ(tokenizer->vocabulary_size(), 400);
  EXPECT_EQ(tokenizer->kind(), TokenizerKind::bpe);
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  EXPECT_LT(ids.size() * 2, text.size());
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("never seen: \xf0\x9f\x98\x80\x7f")),
            "never seen: \xf0\x9f\x98\x80\x7f");
  EXPECT_EQ(train(text, 400)->serialised(), tokenizer->serialised());
  EXPECT_NE(train(text + "more head heads\n", 400)->name(), tokenizer->name());
}

TEST_F(BpeTrainingTest, LongWordsAreSplitForTraining) {
  const auto tokenizer = train(std::string(5000, '-') + "\n", 262);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{256, 257}), "------");
}

TEST_F(BpeTrainingTest, ImpossibleSizesAreRefused) {
  EXPECT_HAS(user_error_of([&] { train("some text\n", 255); }), "tokenizer.vocabulary_size: must be at least 256");
  const std::string message = user_error_of([&] { train("ab ab\n", 300); });
  EXPECT_HAS(message, "tokenizer.vocabulary_size: must be at most 258");
  EXPECT_HAS(message, "got 300");
}

}  // namespace headroom::tokenizers::bpe_training_test
