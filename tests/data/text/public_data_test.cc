// Reads public data sets in their original formats. The tests are skipped if the data is missing.
#include "data/tokens/token_file.h"
#include "support.h"

namespace headroom::data::public_data_test {

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

}  // namespace headroom::data::public_data_test
