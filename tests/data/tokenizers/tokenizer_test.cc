#include "headroom/tokenizers/tokenizer.h"

#include "data/text/support.h"

namespace headroom::tokenizers::tokenizer_test {

using config::TokenizerKind;
using Ids = std::vector<std::int32_t>;

class TokenizerTest : public FolderTest {
 protected:
  std::unique_ptr<Tokenizer> train(const config::TokenizerOptions& options, std::string_view text) const {
    return train_tokenizer(options, *data::open_text({write("train.txt", text)}, {}));
  }
  std::string refusal(const config::TokenizerOptions& options, std::string_view text) const {
    return user_error_of([&] { train(options, text); });
  }
  // Checks that saving and loading does not change a tokenizer.
  void expect_saved(const Tokenizer& tokenizer) const {
    save_tokenizer(tokenizer, at("saved.tokenizer"));
    const auto loaded = load_tokenizer(at("saved.tokenizer"));
    EXPECT_EQ(loaded->name(), tokenizer.name());
    EXPECT_EQ(loaded->kind(), tokenizer.kind());
    EXPECT_EQ(loaded->serialised(), tokenizer.serialised());
    EXPECT_EQ(loaded->vocabulary_size(), tokenizer.vocabulary_size());
  }
};

TEST_F(TokenizerTest, BytesAreTheirOwnIds) {
  for (const std::int64_t size : {256, 8000}) {
    const auto tokenizer = train({.kind = TokenizerKind::bytes, .vocabulary_size = size}, "whatever");
    EXPECT_EQ(tokenizer->vocabulary_size(), 256);
    EXPECT_EQ(tokenizer->encode("A\n\xc3\xa9"), (Ids{65, 10, 0xc3, 0xa9}));
    EXPECT_EQ(tokenizer->decode(Ids{0xff, 0, 0x41}), std::string("\xff\0A", 3));
    EXPECT_EQ(tokenizer->name(), "bytes-256-e3b0c442");
    expect_saved(*tokenizer);
    EXPECT_HAS(user_error_of([&] { tokenizer->decode(Ids{256}); }), "an id must be 0 to 255, got 256");
    EXPECT_HAS(user_error_of([&] { tokenizer->decode(Ids{-1}); }), "got -1");
  }
}

TEST_F(TokenizerTest, FewerBytesMatchTheText) {
  const config::TokenizerOptions four{.kind = TokenizerKind::bytes, .vocabulary_size = 4};
  const auto tokenizer = train(four, "banana\n");
  EXPECT_EQ(tokenizer->vocabulary_size(), 4);
  EXPECT_EQ(tokenizer->encode("ab\nn"), (Ids{1, 2, 0, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{1, 2, 0, 3}), "ab\nn");
  expect_saved(*tokenizer);
  EXPECT_HAS(user_error_of([&] { tokenizer->encode("abc"); }), "the byte 0x63");
  EXPECT_HAS(refusal(four, "bananas\n"), "tokenizer.vocabulary_size: must be at least 5");

  // Spare ids stand for all other bytes.
  const auto spare = train({.kind = TokenizerKind::bytes, .vocabulary_size = 6}, "banana\n");
  EXPECT_EQ(spare->vocabulary_size(), 6);
  EXPECT_EQ(spare->encode("axz\n"), (Ids{1, 4, 4, 0}));
  EXPECT_EQ(spare->decode(Ids{1, 4, 5}), "a\xff\xff");
  expect_saved(*spare);
}

TEST_F(TokenizerTest, CountsTheBytesThatItDrops) {
  const auto lost = [](const Tokenizer& tokenizer, std::string_view text) {
    const Unknown unknown = tokenizer.unknown(text);
    return std::pair(unknown.tokens, unknown.bytes);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  const auto words = train({.kind = TokenizerKind::words, .vocabulary_size = 0}, "the cat\n");
  EXPECT_EQ(lost(*words, "the cat the\n\n"), Pair(0, 0));
  EXPECT_EQ(lost(*words, "the d\u00f6g\nslept "), Pair(2, 4 + 5));
  EXPECT_EQ(lost(*words, "<unk>"), Pair(0, 0)) << "as the papers' corpora have it";
  const auto few = train({.kind = TokenizerKind::bytes, .vocabulary_size = 5}, "banana\n");
  EXPECT_EQ(lost(*few, "bandana!\n"), Pair(2, 2));
  EXPECT_EQ(lost(*train({.kind = TokenizerKind::bytes, .vocabulary_size = 256}, "a"), "\xff!"), Pair(0, 0));
}

TEST_F(TokenizerTest, WordsAreOrderedByTheirNumber) {
  const std::string text = "the cat sat on the mat\n\n  the\tcat \n<unk> b a\n";
  const auto tokenizer = train({.kind = TokenizerKind::words, .vocabulary_size = 0}, text);
  EXPECT_EQ(tokenizer->serialised(), "<unk>\n<eos>\nthe\ncat\na\nb\nmat\non\nsat\n");
  EXPECT_EQ(tokenizer->encode("the cat\nflew on <unk>\n\nmat"), (Ids{2, 3, 1, 0, 7, 0, 1, 1, 6}));
  EXPECT_EQ(tokenizer->decode(Ids{2, 3, 1, 0, 7, 1, 1, 6}), "the cat\n<unk> on\n\nmat");
  expect_saved(*tokenizer);

  const auto four = train({.kind = TokenizerKind::words, .vocabulary_size = 4}, text);
  EXPECT_EQ(four->serialised(), "<unk>\n<eos>\nthe\ncat\n");
  EXPECT_HAS(refusal({.kind = TokenizerKind::words, .vocabulary_size = 10}, text), "must be from 2 to 9");
  EXPECT_HAS(refusal({.kind = TokenizerKind::words, .vocabulary_size = 1}, text), "must be from 2 to 9");
  EXPECT_HAS(refusal({.kind = TokenizerKind::words, .vocabulary_size = 0}, " \n\n"), "holds no words");
}

TEST_F(TokenizerTest, WordsDoNotDependOnBlocks) {
  std::string text;
  Random random(1);
  while (text.size() < (1 << 20)) {
    text += fmt::format("w{} ", random.below(500));
    text += random.below(9) == 0 ? "\n" : "";
  }
  const auto tokenizer = train({.kind = TokenizerKind::words, .vocabulary_size = 0}, text);
  Ids ids;
  for (const std::string& block : data::blocks_of(*data::open_text({at("train.txt")}, {}))) {
    tokenizer->encode(block, ids);
  }
  EXPECT_EQ(ids, tokenizer->encode(text));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 1), std::count(text.begin(), text.end(), '\n'));
}

TEST_F(TokenizerTest, TwoCanBeCombined) {
  std::shared_ptr<const Tokenizer> sources = restore_tokenizer(TokenizerKind::bytes, "abc", "s");
  std::shared_ptr<const Tokenizer> targets = restore_tokenizer(TokenizerKind::words, "<unk>\n<eos>\nab\n", "t");
  const auto two = two_tokenizers(sources, targets);
  EXPECT_EQ(two->kind(), TokenizerKind::words);
  EXPECT_EQ(two->vocabulary_size(), 3);
  EXPECT_EQ(two->source_vocabulary_size(), 3);
  EXPECT_EQ(targets->source_vocabulary_size(), 0);
  EXPECT_EQ(two->encode("ab\n"), (Ids{2, 1}));
  EXPECT_EQ(two->for_sources().encode("cab"), (Ids{2, 0, 1}));
  EXPECT_NE(two->name(), targets->name());
  EXPECT_NE(two->name(), two_tokenizers(restore_tokenizer(TokenizerKind::bytes, "ab", "s"), targets)->name());
  EXPECT_EQ(to_tokenizer_json(*two_tokenizers(targets, sources)), "") << "no such file holds two";
  expect_saved(*two);
  save_tokenizer(*two, at("two.tokenizer"));
  const auto again = load_tokenizer(at("two.tokenizer"));
  EXPECT_EQ(again->for_sources().name(), sources->name());
  EXPECT_EQ(again->for_targets().name(), targets->name());
  EXPECT_HAS(user_error_of([&] { two_tokenizers(two, targets); }), "holds two tokenizers");
  EXPECT_HAS(user_error_of([&] { require_source_vocabulary(*two, 0, "x"); }),
             "x: tokenizer " + two->name() + " has 3 ids for sources alone, but model.source_vocabulary_size is 0");
  require_source_vocabulary(*two, 3, "x");
}

TEST_F(TokenizerTest, AnInconsistentPairIsRefused) {
  const std::string mark = two_tokenizers(restore_tokenizer(TokenizerKind::bytes, "abc", "s"),
                                          restore_tokenizer(TokenizerKind::bytes, "de", "t"))
                               ->serialised();
  const std::string begin = mark.substr(0, mark.find("bytes"));
  ASSERT_EQ(mark, begin + "bytes 3\nabcde");
  const auto refused = [&](const std::string& rest) {
    return user_error_of([&] { restore_tokenizer(TokenizerKind::bytes, begin + rest, "x"); });
  };
  EXPECT_HAS(refused(""), "x: not a pair of tokenizers");
  EXPECT_HAS(refused("bytes 3"), "are missing");
  EXPECT_HAS(refused("syllables 3\nabc"), "unknown tokenizer_kind \"syllables\"");
  EXPECT_HAS(refused("bytes 4\nabc"), "must be from 0 to 3, got \"4\"");
  EXPECT_HAS(refused("bytes -1\nabc"), "got \"-1\"");
  EXPECT_HAS(refused("bytes 99999999999999999999\nabc"), "must be from 0 to 3");
  EXPECT_HAS(refused("bytes 3\nabc" + mark), "one of them is a pair itself");
  EXPECT_HAS(refused("bytes 3\naba"), "has two ids");
}

TEST_F(TokenizerTest, RestoresOnlyWhatATokenizerCouldHaveWritten) {
  const auto refused = [](TokenizerKind kind, const std::string& bytes) {
    return user_error_of([&] { restore_tokenizer(kind, bytes, "x.tokens"); });
  };
  EXPECT_HAS(refused(TokenizerKind::words, ""), "x.tokens: not a words tokenizer");
  EXPECT_HAS(refused(TokenizerKind::words, "<unk>\n<eos>\na\na\n"), "duplicate words");
  for (const char* lines : {"<eos>\n<unk>\n", "<unk>\n<eos>\na", "<unk>\n<eos>\n\na\n", "<unk>\n<eos>\na b\n",
                            "<unk>\n<eos>\n\xff\n", "<unk>\n<eos>\na\tb\n"}) {
    refused(TokenizerKind::words, lines);
  }
  EXPECT_HAS(refused(TokenizerKind::bytes, "aba"), "x.tokens: not a bytes tokenizer");
  EXPECT_HAS(refused(TokenizerKind::bytes,
                     "ab\xff"
                     "c"),
             "0xff only at the end");
  refused(TokenizerKind::bytes, std::string(256, '\xff'));
  EXPECT_HAS(refused(TokenizerKind::sentencepiece, ""), "x.tokens: not a SentencePiece model");
  refused(TokenizerKind::sentencepiece, "hello");
}

TEST_F(TokenizerTest, OtherFilesAreRefusedByName) {
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("none")); }), "none");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(write("empty", "")); }), "empty: not a SentencePiece model");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(write("text", "some text that is no model")); }), "text: not a");
  const auto words = train({.kind = TokenizerKind::words, .vocabulary_size = 0}, "a b c\n");
  save_tokenizer(*words, at("words.tokenizer"));
  const std::string whole = read_bytes(at("words.tokenizer"));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_HAS(user_error_of([&] { load_tokenizer(write("cut.tokenizer", whole.substr(0, size))); }), "cut.tokenizer");
  }
  std::string other = whole;
  other[whole.rfind("\nc\n") + 1] = 'd';  // still valid, but not the tokenizer named in the file
  EXPECT_HAS(user_error_of([&] { load_tokenizer(write("other.tokenizer", other)); }), "but the file says words-5");
}

}  // namespace headroom::tokenizers::tokenizer_test
