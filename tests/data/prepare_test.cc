#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "token_files.h"

namespace headroom::data {
namespace prepare_test {

namespace fs = std::filesystem;
using config::TokenizerKind;

class PrepareTest : public TokenFileTest {
 protected:
  config::DataOptions text_data() const {
    return {.train = {write("train.txt", "a b c\na b\na\n")}, .validation = {write("validation.txt", "b d\n")}};
  }
  PreparedData prepare(const config::DataOptions& data, config::TokenizerOptions options = kWords) const {
    return prepare_data(data, options, folder_ / "cache");
  }
  std::size_t cached() const {
    const fs::directory_iterator files(folder_ / "cache");
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }
  static inline const config::TokenizerOptions kWords{.kind = TokenizerKind::words, .vocabulary_size = 0};
};

TEST_F(PrepareTest, TrainsOnTheTrainingPartAndKeepsWhatItMade) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  EXPECT_EQ(first.tokenizer->serialised(), "<unk>\n<eos>\na\nb\nc\n");
  EXPECT_EQ(ids_of(TokenFile(first.train)), (Ids{2, 3, 4, 1, 2, 3, 1, 2, 1}));
  EXPECT_EQ(ids_of(TokenFile(first.validation)), (Ids{3, 0, 1}));
  EXPECT_EQ(cached(), 3U);
  const auto written = fs::last_write_time(first.train);
  const PreparedData second = prepare(data);
  EXPECT_EQ(second.train, first.train);
  EXPECT_EQ(second.validation, first.validation);
  EXPECT_EQ(fs::last_write_time(first.train), written);
  EXPECT_EQ(cached(), 3U);
}

TEST_F(PrepareTest, ChangedTextOrOptionsAreMadeAnew) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  EXPECT_NE(prepare(data, {.kind = TokenizerKind::words, .vocabulary_size = 4}).train, first.train);
  EXPECT_NE(prepare(data, {.kind = TokenizerKind::bytes, .vocabulary_size = 256}).train, first.train);
  write("train.txt", "a b c d\na b\na\n");
  const PreparedData changed = prepare(data);
  EXPECT_NE(changed.train, first.train);
  EXPECT_EQ(changed.tokenizer->vocabulary_size(), 6);
  EXPECT_NE(changed.validation, first.validation);  // the same text, another tokenizer
}

TEST_F(PrepareTest, AByteThatChangedInACachedFileIsNoticed) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  const std::string good = read_bytes(first.train);
  const std::size_t tokens = good.rfind(std::string("\2\0\3\0\4\0", 6));
  ASSERT_NE(tokens, std::string::npos);
  std::string damaged = good;
  damaged[tokens] = '\3';
  std::ofstream(first.train, std::ios::binary) << damaged;
  set_log_level(LogLevel::quiet);
  EXPECT_EQ(read_bytes(prepare(data).train), good);
}

TEST_F(PrepareTest, ADamagedCachedFileIsMadeAgain) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  const std::string good = read_bytes(first.train);
  set_log_level(LogLevel::quiet);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "cache")) {
    fs::resize_file(entry.path(), entry.file_size() / 2);
  }
  const PreparedData again = prepare(data);
  EXPECT_EQ(again.train, first.train);
  EXPECT_TRUE(read_bytes(again.train) == good);
}

TEST_F(PrepareTest, ProcessesMayPrepareAtOnce) {
  const config::DataOptions data = text_data();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      try {
        const PreparedData prepared = prepare(data);
        const bool whole = TokenFile(prepared.train).size() == 9 && TokenFile(prepared.validation).size() == 3;
        ::_exit(whole ? 0 : 1);
      } catch (...) {
        ::_exit(2);
      }
    }
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(cached(), 3U);
}

TEST_F(PrepareTest, ATokenFileAloneIsEnough) {
  const auto tokenizer = write_words("a b c\na b\n", "made.tokens");
  const std::string text = write("validation.txt", "c d\n");
  const PreparedData prepared = prepare({.train = {at("made.tokens")}, .validation = {text}}, {});
  EXPECT_EQ(prepared.train, at("made.tokens"));
  EXPECT_EQ(prepared.tokenizer->name(), tokenizer->name());
  EXPECT_EQ(ids_of(TokenFile(prepared.validation)), tokenizer->encode("c d\n"));
  // The other way round the training text is encoded with the validation's tokenizer.
  EXPECT_EQ(prepare({.train = {text}, .validation = {at("made.tokens")}}, {}).tokenizer->name(), tokenizer->name());
}

TEST_F(PrepareTest, SeveralTokenFilesAreJoined) {
  const auto tokenizer = write_words("a b c\na b\n", "one.tokens");
  write_token_file(*open_text({write("more.txt", "c c a\n")}, {}), *tokenizer, at("two.tokens"));
  const PreparedData prepared = prepare({.train = {at("*.tokens")}, .validation = {at("one.tokens")}});
  const TokenFile joined(prepared.train);
  Ids expected = ids_of(TokenFile(at("one.tokens")));
  tokenizer->encode("c c a\n", expected);
  EXPECT_EQ(ids_of(joined), expected);
  EXPECT_EQ(joined.text_bytes(), 16);
  EXPECT_EQ(joined.tokenizer_name(), tokenizer->name());
}

TEST_F(PrepareTest, TwoTokenizersAreRefusedByName) {
  const std::string one = write_words("a b c\n", "one.tokens")->name();
  const std::string two = write_words("x y\n", "two.tokens")->name();
  for (const config::DataOptions& data :
       {config::DataOptions{.train = {at("one.tokens")}, .validation = {at("two.tokens")}},
        config::DataOptions{.train = {at("one.tokens"), at("two.tokens")}, .validation = {at("one.tokens")}}}) {
    const std::string message = misuse_of([&] { prepare(data); });
    EXPECT_HAS(message, one);
    EXPECT_HAS(message, two);
    EXPECT_HAS(message, "one.tokens");
    EXPECT_HAS(message, "two.tokens");
  }
  config::TokenizerOptions options = kWords;
  options.model = at("two.tokens");
  const std::string message =
      misuse_of([&] { prepare({.train = {at("one.tokens")}, .validation = {at("one.tokens")}}, options); });
  EXPECT_HAS(message, "tokenizer.model");
  EXPECT_HAS(message, one);
  EXPECT_HAS(message, two);
  EXPECT_HAS(misuse_of([&] { prepare({.train = {at("one.tokens"), write("t.txt", "a\n")}}); }), "not both");
}

TEST_F(PrepareTest, AGivenTokenizerIsUsed) {
  const auto tokenizer = write_words("b a b\n", "other.tokens");
  tokenizers::save_tokenizer(*tokenizer, at("my.tokenizer"));
  config::TokenizerOptions options;
  options.model = at("my.tokenizer");
  const PreparedData prepared = prepare(text_data(), options);
  EXPECT_EQ(prepared.tokenizer->name(), tokenizer->name());
  EXPECT_EQ(ids_of(TokenFile(prepared.validation)), tokenizer->encode("b d\n"));
}

}  // namespace prepare_test
}  // namespace headroom::data
