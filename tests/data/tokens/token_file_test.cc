#include "data/tokens/token_file.h"

#include <numeric>

#include "foundation/core/machine/system.h"
#include "token_files.h"

namespace headroom::data::token_file_test {

namespace fs = std::filesystem;
using config::TokenizerKind;

TEST_F(TokenFileTest, HoldsTheTokensOfTheText) {
  const std::string text = "a b c\nb c\nc\n";
  const auto tokenizer = write_words(text, "a.tokens");
  const TokenFile file(at("a.tokens"));
  EXPECT_EQ(ids_of(file), tokenizer->encode(text));
  EXPECT_EQ(file.size(), 9);
  EXPECT_EQ(file.text_bytes(), std::ssize(text));
  EXPECT_EQ(file.vocabulary_size(), 5);
  EXPECT_EQ(file.tokenizer_name(), tokenizer->name());
  EXPECT_EQ(file.tokenizer()->serialised(), tokenizer->serialised());
  EXPECT_EQ(tokenizers::load_tokenizer(at("a.tokens"))->name(),
            tokenizer->name());  // a token file is also a tokenizer file
  EXPECT_EQ(SafetensorsFile(at("a.tokens")).at("tokens").dtype, DType::u16);
  Ids middle(3);
  file.copy(2, 3, middle.data());
  const Ids all = ids_of(file);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), all.begin() + 2));
  EXPECT_THROW(file.copy(7, 3, middle.data()), Error);
  EXPECT_THROW(file.copy(-1, 1, middle.data()), Error);
  EXPECT_THROW(file.copy(INT64_MAX, INT64_MAX, middle.data()), Error);
}

TEST_F(TokenFileTest, PartsAndShuffledDocumentsAreReadInTheirOrder) {
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += fmt::format("begin {} {}\n\n", i, std::string(static_cast<std::size_t>(i % 5), 'x'));
  }
  write_words(text, "a.tokens");
  const TokenFile file(at("a.tokens"));
  const Ids all = ids_of(file);
  const std::vector<Range>& documents = file.documents();
  ASSERT_GT(documents.size(), 50U);
  const auto is_begin = [&](const Ids& ids, std::int64_t at) { return ids[static_cast<std::size_t>(at)] == all[0]; };
  for (const Range& document : documents) {
    EXPECT_TRUE(is_begin(all, document.begin));
  }
  const TokenFile parts(at("a.tokens"), "", {{documents[2].begin, documents[4].end}, {3, 5}, {0, documents[1].end}});
  Ids expected(all.begin() + documents[2].begin, all.begin() + documents[4].end);
  expected.insert(expected.end(), all.begin() + 3, all.begin() + 5);
  expected.insert(expected.end(), all.begin(), all.begin() + documents[1].end);
  EXPECT_EQ(ids_of(parts), expected);
  EXPECT_EQ(parts.documents().size(), 6U);
  for (const TokenFile* source : {&file, &parts}) {
    const Ids given = ids_of(*source);
    const TokenFile shuffled = source->shuffled(3);
    const Ids ids = ids_of(shuffled);
    EXPECT_NE(ids, given);
    EXPECT_EQ(ids_of(source->shuffled(3)), ids);
    EXPECT_NE(ids_of(file.shuffled(4)), ids);
    EXPECT_EQ(shuffled.documents().size(), source->documents().size());
    std::multiset<Ids> was, is;
    for (std::size_t i = 0; i < source->documents().size(); ++i) {
      const Range from = source->documents()[i], to = shuffled.documents()[i];
      was.insert(Ids(given.begin() + from.begin, given.begin() + from.end));
      is.insert(Ids(ids.begin() + to.begin, ids.begin() + to.end));
    }
    EXPECT_EQ(is, was);
    for (std::int64_t begin = 0; begin + 50 < source->size(); begin += 37) {  // across several parts
      Ids some(50);
      shuffled.copy(begin, 50, some.data());
      EXPECT_TRUE(std::equal(some.begin(), some.end(), ids.begin() + begin));
    }
    EXPECT_THROW(shuffled.copy(source->size() - 1, 2, Ids(2).data()), Error);
  }
  join_token_files({at("a.tokens"), at("a.tokens")}, at("joined.tokens"));
  EXPECT_EQ(TokenFile(at("joined.tokens")).documents().size(), 2 * documents.size());
}

TEST_F(TokenFileTest, DocumentsOutsideTheTokensAreRefused) {
  const Ids ids = {1, 2, 3, 4};
  for (const std::vector<std::int64_t>& starts :
       std::vector<std::vector<std::int64_t>>{{0, 4}, {1, 2}, {0, 2, 2}, {0, -1}, {0, INT64_MAX}, {}}) {
    SafetensorsWriter writer;
    writer.add("tokens", DType::i32, {4}, std::as_bytes(std::span(ids)));
    writer.add("tokenizer", DType::u8, {0}, {});
    writer.add("documents", DType::i64, {std::ssize(starts)}, std::as_bytes(std::span(starts)));
    for (const auto& [key, value] : token_metadata(256)) {
      writer.set_metadata(key, value);
    }
    writer.write(at("bad.tokens"));
    EXPECT_HAS(refusal("bad.tokens"), "bad.tokens: tensor \"documents\"");
  }
}

// Only the checksum reveals a changed id that is still valid.
TEST_F(TokenFileTest, DamageIsDetected) {
  write_words("a a a b b c\n", "a.tokens");
  std::string bytes = read_bytes(at("a.tokens"));
  const std::size_t tokens = bytes.rfind(std::string("\3\0\3\0\4\0", 6));
  ASSERT_NE(tokens, std::string::npos);
  TokenFile(at("a.tokens")).verify();
  bytes[tokens] = '\2';
  const std::string damaged = write("damaged.tokens", bytes);
  EXPECT_HAS(user_error_of([&] { TokenFile(damaged).verify(); }),
             "damaged.tokens: is damaged: the checksum of its tokens is");
  EXPECT_HAS(user_error_of([&] { join_token_files({at("a.tokens"), damaged}, at("joined.tokens")); }), "is damaged");
  EXPECT_HAS(
      user_error_of([&] { prepare_data({.train = {damaged}, .validation = {at("a.tokens")}}, {}, at("cache")); }),
      "damaged.tokens: is damaged");
}

TEST_F(TokenFileTest, ReportsWhatTheTokenizerDropped) {
  const auto words = write_words("a b c\n", "known.tokens");
  write_token_file(*open_text({write("other.txt", "a bee c\nsea\n")}, {}), *words, at("other.tokens"));
  const TokenFile known(at("known.tokens")), other(at("other.tokens"), "other.txt");
  EXPECT_EQ(known.unknown()->tokens, 0);
  EXPECT_EQ(other.unknown()->tokens, 2);
  EXPECT_EQ(other.unknown()->bytes, 6);
  EXPECT_EQ(other.name(), "other.txt");
  EXPECT_EQ(known.name(), at("known.tokens"));
  join_token_files({at("known.tokens"), at("other.tokens"), at("other.tokens")}, at("joined.tokens"));
  EXPECT_EQ(TokenFile(at("joined.tokens")).unknown()->bytes, 12);
}

TEST_F(TokenFileTest, ALargeVocabularyTakesFourBytes) {
  std::string text;
  for (int i = 0; i < 70000; ++i) {
    text += fmt::format("w{}\n", i);
  }
  const auto tokenizer = write_words(text, "large.tokens");
  const TokenFile file(at("large.tokens"));
  EXPECT_EQ(SafetensorsFile(at("large.tokens")).at("tokens").dtype, DType::i32);
  EXPECT_EQ(file.vocabulary_size(), 70002);
  EXPECT_EQ(ids_of(file), tokenizer->encode(text));
}

TEST_F(TokenFileTest, ThreadsDoNotChangeTheResult) {
  std::string text;
  Random random(1);
  while (text.size() < (std::size_t{8} << 20)) {
    text += fmt::format("{} ", random.below(90));
    text += random.below(15) == 0 ? "\n" : "";
  }
  const auto tokenizer = write_words(text, "one.tokens", 1);
  write_words(text, "three.tokens", 3);
  write_words(text, "forty.tokens", 40);
  const std::string one = read_bytes(at("one.tokens"));
  EXPECT_TRUE(one == read_bytes(at("three.tokens")));
  EXPECT_TRUE(one == read_bytes(at("forty.tokens")));
  EXPECT_TRUE(ids_of(TokenFile(at("one.tokens"))) == tokenizer->encode(text));
}

TEST_F(TokenFileTest, NothingIsLeftOfAFailure) {
  const auto words = write_words("a b\n", "a.tokens");
  const auto bytes = tokenizers::restore_tokenizer(TokenizerKind::bytes, "ab", "test");
  const std::string late = std::string(3000000, 'a') + "z";
  EXPECT_HAS(
      user_error_of([&] { write_token_file(*open_text({write("late.txt", late)}, {}), *bytes, at("late.tokens")); }),
      "the byte 0x7a");
  EXPECT_HAS(user_error_of([&] {
               write_token_file(*open_text({write("bad.txt", late + "\xff")}, {}), *words, at("late.tokens"));
             }),
             "bad.txt: is not valid UTF-8");
  EXPECT_HAS(
      user_error_of([&] { write_token_file(*open_text({write("blank.txt", "   ")}, {}), *words, at("late.tokens")); }),
      "late.tokens: not written: the text has no tokens");
  EXPECT_FALSE(fs::exists(at("late.tokens")));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().filename().string().find("tmp"), std::string::npos) << entry.path();
  }
}

TEST_F(TokenFileTest, RefusesOtherFormatsAndWrongMetadata) {
  const Ids ids = {1, 2, 3};
  const auto written = [&](const std::string& key, const char* value) {
    SafetensorsWriter writer;
    writer.add("tokens", DType::i32, {3}, std::as_bytes(std::span(ids)));
    writer.add("tokenizer", DType::u8, {0}, {});
    for (const auto& [name, text] : token_metadata(256)) {
      if (name != key || value != nullptr) {
        writer.set_metadata(name, name == key ? value : text);
      }
    }
    writer.write(at("lying.tokens"));
    return refusal("lying.tokens");
  };
  EXPECT_HAS(written("format", "headroom.tokens.2"), "not a token file: its format is \"headroom.tokens.2\"");
  for (const char* key : {"format", "tokenizer_kind", "tokenizer_name", "vocabulary_size", "text_bytes"}) {
    EXPECT_HAS(written(key, nullptr), "lying.tokens");
  }
  for (const char* number : {"", "-1", "0", "1e3", " 5", "5 ", "99999999999999999999", "2147483648"}) {
    EXPECT_HAS(written("vocabulary_size", number), "metadata \"vocabulary_size\" must be a number");
  }
  EXPECT_HAS(written("text_bytes", "-5"), "metadata \"text_bytes\"");
  EXPECT_HAS(written("text_bytes", "9223372036854775807"), "metadata \"text_bytes\"");  // sums would overflow
  EXPECT_HAS(written("vocabulary_size", "3"), "an id among tokens 0 to 2 is not below its vocabulary_size 3");
  EXPECT_HAS(written("vocabulary_size", "300"),
             "its tokenizer bytes-256-e3b0c442 has 256 ids, but its vocabulary_size is 300");
  EXPECT_HAS(written("tokenizer_name", "bytes-256-00000000"), "but the file says bytes-256-00000000");
  EXPECT_HAS(written("tokenizer_kind", "syllables"), "unknown tokenizer_kind \"syllables\"");

  const auto of_type = [&](DType dtype, std::vector<std::int64_t> shape, std::size_t bytes) {
    const std::vector<std::byte> zeros(bytes);
    SafetensorsWriter writer;
    writer.add("tokens", dtype, std::move(shape), zeros);
    writer.add("tokenizer", DType::u8, {0}, {});
    for (const auto& [name, text] : token_metadata(256)) {
      writer.set_metadata(name, text);
    }
    writer.write(at("typed.tokens"));
    return refusal("typed.tokens");
  };
  EXPECT_HAS(of_type(DType::f32, {3}, 12), "must be U16 or I32 with one dimension");
  EXPECT_HAS(of_type(DType::i64, {3}, 24), "must be U16 or I32");
  EXPECT_HAS(of_type(DType::u16, {3, 1}, 6), "with one dimension");
  EXPECT_HAS(of_type(DType::u16, {0}, 0), "typed.tokens: holds no tokens");
  write_tokens(at("negative.tokens"), {5, -1}, 1000);
  EXPECT_HAS(user_error_of([&] { ids_of(TokenFile(at("negative.tokens"))); }), "negative.tokens: is damaged");
}

// Reading a part of a large file must not read the rest.
TEST_F(TokenFileTest, AHugeFileIsReadOnDemand) {
  constexpr std::int64_t kTokens = std::int64_t{1} << 30;  // 2 GiB, nearly all of them a hole in the file
  std::string metadata;
  for (const auto& [key, value] : token_metadata(256)) {
    metadata += fmt::format("{}\"{}\":\"{}\"", metadata.empty() ? "" : ",", key, value);
  }
  const std::string header = fmt::format(
      "{{\"__metadata__\":{{{}}},\"tokenizer\":{{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}},\"tokens\":{{"
      "\"dtype\":\"U16\",\"shape\":[{}],\"data_offsets\":[0,{}]}}}}",
      metadata, kTokens, 2 * kTokens);
  std::uint64_t length = header.size();
  std::string front(reinterpret_cast<const char*>(&length), sizeof length);
  const std::string path = write("huge.tokens", front + header);
  fs::resize_file(path, front.size() + header.size() + 2 * kTokens);
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(-2, std::ios::end).write("\x2a\0", 2);

  const std::int64_t before = resident_memory_bytes();
  const TokenFile file(path);
  EXPECT_EQ(file.size(), kTokens);
  Ids ids(1000);
  for (const std::int64_t begin : {std::int64_t{0}, kTokens / 2, kTokens - 1000}) {
    file.copy(begin, 1000, ids.data());
  }
  EXPECT_EQ(ids[999], 42);
  EXPECT_EQ(std::accumulate(ids.begin(), ids.end(), 0), 42);
  EXPECT_LT(resident_memory_bytes() - before, std::int64_t{16} << 20);
}

}  // namespace headroom::data::token_file_test
