// Reads public data sets in their original formats. The tests are skipped if the data is missing.
#include "data/synthetic/composition_task.h"
#include "data/text/documents.h"
#include "data/tokens/token_file.h"
#include "headroom/core/json.h"
#include "support.h"

namespace headroom::data {
namespace public_data_test {

namespace fs = std::filesystem;
using config::TokenizerKind;

class PublicDataTest : public FolderTest {
 protected:
  void SetUp() override {
    if (!fs::exists(kData)) {
      GTEST_SKIP() << "the public data is not at " << kData.string();
    }
  }
  static std::string data(const std::string& name) { return (kData / name).string(); }
  static inline const fs::path kData = fs::path(HEADROOM_SOURCE_DIR).parent_path() / "shared" / "data";
};

TEST_F(PublicDataTest, WikiText2HasTheKnownNumberOfWords) {
  const auto train = open_text({data("wikitext-2/train.txt.gz")}, {});
  const auto tokenizer = tokenizers::train_tokenizer({.kind = TokenizerKind::words, .vocabulary_size = 0}, *train);
  EXPECT_EQ(tokenizer->vocabulary_size(), 33278);
  const auto tokens = [&](const std::string& split) {
    const std::string path = at(split + ".tokens");
    write_token_file(*open_text({data("wikitext-2/" + split + ".txt.gz")}, {}), *tokenizer, path);
    const TokenFile file(path);
    return file.size();
  };
  EXPECT_EQ(tokens("train"), 2088628);
  EXPECT_EQ(tokens("valid"), 217646);
  EXPECT_EQ(tokens("test"), 245569);
}

TEST_F(PublicDataTest, Gpt2SplitsTinyShakespeareIntoTheKnownNumberOfTokens) {
  const auto text = open_text({data("tinyshakespeare/input.txt.gz")}, {});
  const auto tokenizer = tokenizers::load_tokenizer(data("gpt2_bpe"));
  EXPECT_EQ(tokenizer->vocabulary_size(), 50257);
  EXPECT_EQ(tokenizer->encode("Hello world<|endoftext|>"), (std::vector<std::int32_t>{15496, 995, 50256}));
  write_token_file(*text, *tokenizer, at("gpt2.tokens"));
  const TokenFile file(at("gpt2.tokens"));
  EXPECT_EQ(file.size(), 338025);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
  file.copy(0, file.size(), ids.data());
  EXPECT_TRUE(tokenizer->decode(ids) == text_of(*text));
}

TEST_F(PublicDataTest, TinyShakespeareSurvivesSentencePiece) {
  const auto text = open_text({data("tinyshakespeare/input.txt.gz")}, {});
  const std::string all = text_of(*text);
  EXPECT_EQ(all.size(), 1115394U);
  const auto tokenizer = tokenizers::train_tokenizer({.vocabulary_size = 1000, .keep_whitespace = true}, *text);
  write_token_file(*text, *tokenizer, at("shakespeare.tokens"));
  const TokenFile file(at("shakespeare.tokens"));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
  file.copy(0, file.size(), ids.data());
  EXPECT_TRUE(tokenizer->decode(ids) == all);
  EXPECT_EQ(file.text_bytes(), 1115394);
  EXPECT_LT(file.size(), 600000);
}

TEST_F(PublicDataTest, EnwikAsBytes) {
  const auto text = open_text({data("enwik/enwik8_first_1M_chars.gz")}, {});
  const std::string all = text_of(*text);
  const auto tokenizer = tokenizers::train_tokenizer({.kind = TokenizerKind::bytes, .vocabulary_size = 256}, *text);
  write_token_file(*text, *tokenizer, at("enwik.tokens"));
  const TokenFile file(at("enwik.tokens"));
  EXPECT_EQ(file.size(), std::ssize(all));
  std::vector<std::int32_t> ids(static_cast<std::size_t>(file.size()));
  file.copy(0, file.size(), ids.data());
  EXPECT_TRUE(tokenizer->decode(ids) == all);
}

TEST_F(PublicDataTest, LambadaIsJsonLines) {
  const std::string text = text_of({data("lambada/lambada_test.jsonl.gz")}, {.separator = "\x1e"});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\x1e') + 1, 5153);
}

TEST_F(PublicDataTest, CompositionRowsHaveSixAnswersEach) {
  int rows = 0;
  for (const Document& document : read_documents(data("synthetic_composition/synthetic_dataset.jsonl.gz"), {})) {
    for_each_line(document.text, [&](std::string_view line, std::int64_t number) {
      const Json row = parse_json(line, document.name);
      EXPECT_EQ(row["task_id"], fmt::format("task{}", rows / 12));
      EXPECT_EQ(parse_composition_row(row["texts"].get<std::string>(), "row").answers.size(), 6U) << number;
      ++rows;
    });
  }
  EXPECT_EQ(rows, 12 * kCompositionSubtasks);
}

TEST_F(PublicDataTest, BlimpHas67SubsetsInItsArchive) {
  const auto subsets =
      read_documents(data("blimp/blimp.tar.gz"), [](std::string_view name) { return name.ends_with(".jsonl"); });
  EXPECT_EQ(subsets.size(), 67U);
  for (const Document& subset : subsets) {
    EXPECT_EQ(std::count(subset.text.begin(), subset.text.end(), '\n'), 1000) << subset.name;
  }
}

}  // namespace public_data_test
}  // namespace headroom::data
