#include "tools/serve/engine/served_model.h"

#include "data/text/text.h"
#include "foundation/core/scratch_folder.h"

namespace headroom::serve::served_model_test {

class TokenTextTest : public ScratchFolder {
 protected:
  std::unique_ptr<tokenizers::Tokenizer> trained(const config::TokenizerOptions& options) const {
    std::string text;
    for (int i = 0; i < 200; ++i) {
      text += fmt::format("the head room {} attends to every token twice caf\u00e9\n", i);
    }
    return tokenizers::train_tokenizer(options, *data::open_text({put("t.txt", text).string()}, {}));
  }
  static TokenText spelled(const tokenizers::Tokenizer& tokenizer) {
    return TokenText(tokenizer, store::default_special_tokens(tokenizer));
  }
};

TEST_F(TokenTextTest, EachIdHasAUniqueText) {
  for (const config::TokenizerOptions& options :
       {config::TokenizerOptions{.kind = config::TokenizerKind::bytes, .vocabulary_size = 256},
        {.kind = config::TokenizerKind::words, .vocabulary_size = 0},
        {.kind = config::TokenizerKind::bpe, .vocabulary_size = 300},
        {.kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 300}}) {
    const auto tokenizer = trained(options);
    const TokenText text = spelled(*tokenizer);
    ASSERT_EQ(text.size(), tokenizer->vocabulary_size());
    std::set<std::string> all;
    for (std::int64_t id = 0; id < text.size(); ++id) {
      EXPECT_TRUE(all.insert(text.of(id)).second) << tokenizer->name() << ": " << text.of(id);
    }
  }
}

TEST_F(TokenTextTest, TextsAreThoseInsideAText) {
  const auto pieces = trained({.kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 300});
  const TokenText text = spelled(*pieces);
  std::string joined;
  for (const std::int32_t id : pieces->encode("the head room")) {
    joined += text.of(id);
  }
  EXPECT_EQ(joined, "the head room");
  EXPECT_EQ(text.of(pieces->id_of("<0xE2>")), "bytes:\\xe2");
  EXPECT_EQ(text.of(pieces->id_of("</s>")), "</s>");

  const auto bytes = trained({.kind = config::TokenizerKind::bytes, .vocabulary_size = 256});
  EXPECT_EQ(spelled(*bytes).of('a'), "a");
  EXPECT_EQ(spelled(*bytes).of(0xe2), "bytes:\\xe2");

  const auto bpe = trained({.kind = config::TokenizerKind::bpe, .vocabulary_size = 300});
  const std::vector<std::int32_t> ids = bpe->encode("\u00e8");
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_EQ(spelled(*bpe).of(ids[0]) + spelled(*bpe).of(ids[1]), "bytes:\\xc3bytes:\\xa8");
}

}  // namespace headroom::serve::served_model_test
