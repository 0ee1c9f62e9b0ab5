#include "fuzz.h"

#include "data/pairs/pairs.h"
#include "data/text/labelled_text.h"
#include "data/tokens/token_file.h"
#include "foundation/core/text/utf8.h"
#include "support.h"

namespace headroom::data::data_fuzz_test {

using config::TokenizerKind;

class DataFuzz : public FolderTest {
 protected:
  void SetUp() override { set_log_level(LogLevel::quiet); }

  static std::size_t drain(tokenizers::TextSource& text) {
    std::size_t bytes = 0;
    for (std::string block; text.next(block);) {
      EXPECT_TRUE(is_utf8(block));
      bytes += block.size();
    }
    return bytes;
  }
};

TEST_F(DataFuzz, TokenFiles) {
  const auto file_of = [&](const tokenizers::Tokenizer& tokenizer) {
    write_token_file(*open_text({write("good.txt", "head room\nhead\n")}, {}), tokenizer, at("good.tokens"), 1);
    return read_bytes(at("good.tokens"));
  };
  // Removes the reserved bytes after the header, where mutations would have no effect.
  const auto compact = [&](const std::string& file) {
    const std::size_t end = file.find_last_not_of(' ', 65536 - 1) + 1;
    const std::uint64_t length = end - 8;
    std::string small(reinterpret_cast<const char*>(&length), 8);
    return small + file.substr(8, end - 8) + file.substr(65536);
  };
  const auto words = tokenizers::restore_tokenizer(TokenizerKind::words, "<unk>\n<eos>\nhead\n", "w");
  const auto bpe = tokenizers::restore_tokenizer(
      TokenizerKind::bpe, tokenizers::to_tokenizer_json(*tokenizers::restore_tokenizer(TokenizerKind::bytes, "", "b")),
      "p");
  const fuzz::Material material{
      .good = {compact(file_of(*words)), compact(file_of(*bpe))},
      .dictionary = {"\"I32\"", "\"U16\"", "tokenizer_kind", "words", "bpe", "vocabulary_size", "[0,24]", "tokens"}};
  fuzz::against(material, 2000, [&](const std::string& input) {
    const TokenFile file(write("input.tokens", input));
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
    file.copy(0, file.size(), ids.data());
    for (const std::int32_t id : ids) {
      EXPECT_TRUE(id >= 0 && id < file.vocabulary_size()) << id;
    }
    file.tokenizer()->decode(ids);
  });
}

TEST_F(DataFuzz, TextAndGzip) {
  const std::string text = "caf\xc3\xa9 \xe6\x97\xa5\n\xf0\x9f\x98\x80 plain\n";
  const fuzz::Material material{.good = {text, gzip(text), gzip(text) + gzip("more\n"), gzip(std::string(5000, 'a'))},
                                .dictionary = {"\xff", "\xc3", "\xed\xa0\x80", std::string("\0", 1), "\x1f\x8b\x08",
                                               "\xf4\x90\x80\x80", "\n", gzip("")}};
  fuzz::against(material, 3000, [&](const std::string& input) { drain(*open_text({write("input", input)}, {})); });
}

TEST_F(DataFuzz, Zstd) {
  const std::string text = "caf\xc3\xa9 \xe6\x97\xa5\n plain and plain and plain again\n";
  const fuzz::Material material{.good = {zstd(text), zstd(text) + zstd("more\n"), zstd(std::string(5000, 'a'))},
                                .dictionary = {"\x28\xb5\x2f\xfd", std::string("\x50\x2a\x4d\x18\1\0\0\0x", 9), "\xff",
                                               zstd(""), zstd(text, 28)}};
  fuzz::against(material, 3000, [&](const std::string& input) { drain(*open_text({write("input", input)}, {})); });
}

TEST_F(DataFuzz, JsonLines) {
  const fuzz::Material material{
      .good = {"{\"text\": \"a \\u00e9\"}\n{\"text\": \"b\\n\", \"id\": 7}\n", "{\"text\":\"\\ud83d\\ude00\"}"},
      .dictionary = {"\"text\"", "\n", "{}", "\\ud800", "[[[[[[", "{\"text\":", "null", "\\u0000", "\xc3"}};
  fuzz::against(material, 3000,
                [&](const std::string& input) { drain(*open_text({write("input.jsonl", input)}, {})); });
}

TEST_F(DataFuzz, Tables) {
  const fuzz::Material material{.good = {"label,text\n0,\"a, \"\"b\"\"\nc\"\n1,d\r\n", "\xef\xbb\xbflabel,text\n1,x\n"},
                                .dictionary = {"\"", ",", "\n", "\r\n", "\"\"", "\t", "\xef\xbb\xbf", "\xff"}};
  for (const char* name : {"input.csv", "input.tsv"}) {
    fuzz::against(
        material, 2000,
        [&](const std::string& input) {
          for_each_row({write(name, input)}, {.row = [](const auto& row) { EXPECT_FALSE(row.empty()); }});
        },
        2);
  }
}

TEST_F(DataFuzz, SentencePairs) {
  const fuzz::Material material{
      .good = {"a b\tc d\ne\tf\n", "caf\xc3\xa9\t\xe6\x97\xa5\r\n", gzip("a\tb\n")},
      .dictionary = {"\t", "\n", "\r\n", std::string(1, '\0'), "\xff", "\xc3", " ", "\xef\xbb\xbf"}};
  config::DataOptions options;
  for (const bool skip : {false, true}) {
    options.skip_bad_rows = skip;
    fuzz::against(
        material, 1500,
        [&](const std::string& input) {
          PairReader pairs({.source = {write("pairs.tsv", input)}, .target = {}}, options);
          for (TextPair pair; pairs.next(pair);) {
            EXPECT_TRUE(is_utf8(pair.source) && is_utf8(pair.target) && !pair.source.empty() && !pair.target.empty());
          }
          EXPECT_LE(pairs.skipped(), pairs.rows());
        },
        2);
  }
}

}  // namespace headroom::data::data_fuzz_test
