#include "fuzz.h"

#include "data/tokenizers/bpe/model.h"
#include "folder_test.h"
#include "headroom/tokenizers/tokenizer.h"

namespace headroom::tokenizers::tokenizers_fuzz_test {

using config::TokenizerKind;

class TokenizerFuzz : public testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::quiet); }

  static void use(const Tokenizer& tokenizer) {
    const std::string text = "head  room\n\xc3\xa9<|end|>12 \xf0\x9f\x98\x80";
    for (const std::int32_t id : tokenizer.encode(text)) {
      EXPECT_LT(id, tokenizer.vocabulary_size());
      tokenizer.decode(std::span(&id, 1));
    }
    const auto again = restore_tokenizer(tokenizer.kind(), tokenizer.serialised(), "again");
    EXPECT_EQ(again->name(), tokenizer.name());
  }
};

const char* const kTokenizer =
    R"({"version":"1.0","added_tokens":[{"id":6,"content":"<|end|>","single_word":false,"lstrip":false,"rstrip":false,)"
    R"("normalized":false,"special":true}],"normalizer":{"type":"NFC"},"pre_tokenizer":{"type":"ByteLevel",)"
    R"("add_prefix_space":false},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","ignore_merges":true,)"
    R"("vocab":{"h":0,"e":1,"he":2,"a":3,"hea":4,"Ã":5},"merges":["h e",["he","a"]]},"spare_ids":3})";

TEST_F(TokenizerFuzz, TokenizerJson) {
  const fuzz::Material material{
      .good = {kTokenizer, to_tokenizer_json(*restore_tokenizer(TokenizerKind::bytes, "", "bytes")),
               to_tokenizer_json(parse_tokenizer_json(kTokenizer, "good"))},
      .dictionary = {"\"vocab\":{", "\"merges\":[", "\"h\":0", "\"h e\"", "null", "true", "[]", "{}",
                     "\"id\":2147483647", "\"content\":\"\"", "\"type\":\"NFC\"", "\xc3", "\\u0120",
                     "\"normalized\":true"}};
  // A mutated vocabulary may lack a byte, which is an error only if a text contains it.
  fuzz::against(material, 1500, [](const std::string& input) {
    const BpeModel model = parse_tokenizer_json(input, "input.json");
    EXPECT_EQ(to_tokenizer_json(parse_tokenizer_json(to_tokenizer_json(model), "again")), to_tokenizer_json(model));
    const auto tokenizer = restore_tokenizer(TokenizerKind::bpe, input, "input.json");
    tokenizer->decode(std::vector<std::int32_t>{0, static_cast<std::int32_t>(tokenizer->vocabulary_size() - 1)});
    try {
      use(*tokenizer);
    } catch (const UserError& error) {
      EXPECT_HAS(std::string(error.what()), "not in its vocabulary");
    }
  });
}

TEST_F(TokenizerFuzz, VocabularyAndMerges) {
  const std::string vocabulary = R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})";
  const fuzz::Material material{.good = {vocabulary + "\n#version: 0.2\na b\n", vocabulary + "\na b\r\n\n"},
                                .dictionary = {"a b", "\n", " ", "\"c\": 4", "{", "}", "#version", "\xff"}};
  fuzz::against(material, 3000, [](const std::string& input) {
    const std::size_t cut = std::min(input.find('\n'), input.size());
    const std::string_view all = input;
    parse_vocabulary_and_merges(
        {.vocabulary = all.substr(0, cut), .origin = "v", .merges = all.substr(cut), .merges_origin = "m"}, {});
  });
}

TEST_F(TokenizerFuzz, OtherTokenizers) {
  const fuzz::Material words{.good = {"<unk>\n<eos>\nhead\nroom\n", "<unk>\n<eos>\n"},
                             .dictionary = {"\n", " ", "<unk>", "<eos>", "\xc3\xa9", "\xc3"}};
  fuzz::against(
      words, 2000, [](const std::string& input) { use(*restore_tokenizer(TokenizerKind::words, input, "w")); }, 3);
  const fuzz::Material bytes{.good = {"", "abc"}, .dictionary = {"\xff", "a", std::string(300, 'x')}};
  fuzz::against(
      bytes, 2000,
      [](const std::string& input) {
        restore_tokenizer(TokenizerKind::bytes, input, "b")->decode(std::vector<std::int32_t>{0});
      },
      3);
  const auto two = two_tokenizers(restore_tokenizer(TokenizerKind::words, "<unk>\n<eos>\nhead\n", "w"),
                                  restore_tokenizer(TokenizerKind::bytes, "", "b"));
  const fuzz::Material pairs{.good = {two->serialised()},
                             .dictionary = {"words ", "bytes ", "sentencepiece ", "0\n", "19\n", "-1\n", "\n"}};
  fuzz::against(
      pairs, 2000, [](const std::string& input) { use(*restore_tokenizer(TokenizerKind::bytes, input, "two")); }, 3);
}

}  // namespace headroom::tokenizers::tokenizers_fuzz_test
