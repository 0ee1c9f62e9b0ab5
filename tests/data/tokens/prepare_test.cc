#include <sys/wait.h>

#include "token_files.h"

namespace headroom::data::prepare_test {

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
  static fs::path train_of(const PreparedData& prepared) { return prepared.train.front().file; }
  std::size_t cached() const {
    const fs::directory_iterator files(folder_ / "cache");
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }
  static inline const config::TokenizerOptions kWords{.kind = TokenizerKind::words, .vocabulary_size = 0};
};

TEST_F(PrepareTest, TrainsTheTokenizerOnTheTrainingPartAndCachesIt) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  EXPECT_EQ(first.tokenizer->serialised(), "<unk>\n<eos>\na\nb\nc\n");
  EXPECT_EQ(ids_of(TokenFile(train_of(first))), (Ids{2, 3, 4, 1, 2, 3, 1, 2, 1}));
  EXPECT_EQ(ids_of(TokenFile(first.validation.file)), (Ids{3, 0, 1}));
  EXPECT_EQ(cached(), 3U);
  const auto written = fs::last_write_time(train_of(first));
  const PreparedData second = prepare(data);
  EXPECT_EQ(train_of(second), train_of(first));
  EXPECT_EQ(second.validation.file, first.validation.file);
  EXPECT_EQ(fs::last_write_time(train_of(first)), written);
  EXPECT_EQ(cached(), 3U);
}

TEST_F(PrepareTest, ChangedTextOrOptionsArePreparedAgain) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  EXPECT_NE(train_of(prepare(data, {.kind = TokenizerKind::words, .vocabulary_size = 4})), train_of(first));
  EXPECT_NE(train_of(prepare(data, {.kind = TokenizerKind::bytes, .vocabulary_size = 256})), train_of(first));
  write("train.txt", "a b c d\na b\na\n");
  const PreparedData changed = prepare(data);
  EXPECT_NE(train_of(changed), train_of(first));
  EXPECT_EQ(changed.tokenizer->vocabulary_size(), 6);
  EXPECT_NE(changed.validation.file, first.validation.file);  // the text is the same, the tokenizer is not
}

TEST_F(PrepareTest, AChangedByteInACachedFileIsDetected) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  const std::string good = read_bytes(train_of(first));
  const std::size_t tokens = good.rfind(std::string("\2\0\3\0\4\0", 6));
  ASSERT_NE(tokens, std::string::npos);
  std::string damaged = good;
  damaged[tokens] = '\3';
  std::ofstream(train_of(first), std::ios::binary) << damaged;
  set_log_level(LogLevel::quiet);
  EXPECT_EQ(read_bytes(train_of(prepare(data))), good);
}

TEST_F(PrepareTest, ADamagedCachedFileIsRebuilt) {
  const config::DataOptions data = text_data();
  const PreparedData first = prepare(data);
  const std::string good = read_bytes(train_of(first));
  set_log_level(LogLevel::quiet);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "cache")) {
    fs::resize_file(entry.path(), entry.file_size() / 2);
  }
  const PreparedData again = prepare(data);
  EXPECT_EQ(train_of(again), train_of(first));
  EXPECT_TRUE(read_bytes(train_of(again)) == good);
}

TEST_F(PrepareTest, ProcessesMayPrepareAtOnce) {
  const config::DataOptions data = text_data();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(::fork());
    if (children.back() == 0) {
      try {
        const PreparedData prepared = prepare(data);
        const bool whole = TokenFile(train_of(prepared)).size() == 9 && TokenFile(prepared.validation.file).size() == 3;
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
  EXPECT_EQ(train_of(prepared), at("made.tokens"));
  EXPECT_EQ(prepared.tokenizer->name(), tokenizer->name());
  EXPECT_EQ(ids_of(TokenFile(prepared.validation.file)), tokenizer->encode("c d\n"));
  // Conversely, the training text is encoded with the validation file's tokenizer.
  EXPECT_EQ(prepare({.train = {text}, .validation = {at("made.tokens")}}, {}).tokenizer->name(), tokenizer->name());
}

TEST_F(PrepareTest, SeveralTokenFilesAreJoined) {
  const auto tokenizer = write_words("a b c\na b\n", "one.tokens");
  write_token_file(*open_text({write("more.txt", "c c a\n")}, {}), *tokenizer, at("two.tokens"));
  const PreparedData prepared = prepare({.train = {at("*.tokens")}, .validation = {at("one.tokens")}});
  const TokenFile joined(train_of(prepared));
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
    const std::string message = user_error_of([&] { prepare(data); });
    EXPECT_HAS(message, one);
    EXPECT_HAS(message, two);
    EXPECT_HAS(message, "one.tokens");
    EXPECT_HAS(message, "two.tokens");
  }
  config::TokenizerOptions options = kWords;
  options.model = at("two.tokens");
  const std::string message =
      user_error_of([&] { prepare({.train = {at("one.tokens")}, .validation = {at("one.tokens")}}, options); });
  EXPECT_HAS(message, "tokenizer.model");
  EXPECT_HAS(message, one);
  EXPECT_HAS(message, two);
  EXPECT_HAS(user_error_of([&] { prepare({.train = {at("one.tokens"), write("t.txt", "a\n")}}); }), "not both");
}

Ids first_ids(const TokenFile& file, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  file.copy(0, count, ids.data());
  return ids;
}

TEST_F(PrepareTest, TheLastTokensOfATokenFileAreHeldOut) {
  std::string text;
  for (int line = 0; line < 50; ++line) {
    text += fmt::format("line {}\n", line);
  }
  for (const TokenizerKind kind : {TokenizerKind::bytes, TokenizerKind::words, TokenizerKind::bpe}) {
    const auto source = open_text({write("text.txt", text)}, {});
    const auto tokenizer =
        tokenizers::train_tokenizer({.kind = kind, .vocabulary_size = kind == TokenizerKind::words ? 0 : 256}, *source);
    write_token_file(*source, *tokenizer, at("text.tokens"));
    const PreparedData prepared =
        prepare({.train = {at("text.tokens")}, .order = config::Order::given, .validation_fraction = 0.1}, {});
    EXPECT_EQ(train_of(prepared), at("text.tokens"));  // the file itself, without its last part
    const TokenFile train(train_of(prepared), "", prepared.train.front().parts), held_out(prepared.validation.file);
    const std::string before = tokenizer->decode(first_ids(train, train.size())),
                      after = tokenizer->decode(ids_of(held_out));
    EXPECT_EQ(before + after, text);
    EXPECT_TRUE(before.ends_with('\n'));  // cut at a line end
    EXPECT_NEAR(static_cast<double>(held_out.size()), 0.1 * static_cast<double>(train.size() + held_out.size()), 8.0);
    EXPECT_EQ(held_out.text_bytes(), std::ssize(after));
    ASSERT_TRUE(held_out.unknown());
    EXPECT_EQ(held_out.unknown()->bytes, 0);
    EXPECT_HAS(prepared.validation.name, "a share of");
    // An evaluation alone must prepare the same split.
    const config::DataOptions data{
        .train = {at("text.tokens")}, .order = config::Order::given, .validation_fraction = 0.1};
    EXPECT_EQ(prepare_validation(data, prepared.tokenizer, folder_ / "cache").file, prepared.validation.file);
    EXPECT_THROW(train.copy(0, train.size() + 1, Ids(1000).data()), Error);
  }
}

TEST_F(PrepareTest, DocumentsOfATokenFileAreHeldOut) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += fmt::format("document {}\n{}\n", i, i % 2 == 0 ? "\n" : "of two lines\n\n");
  }
  const auto source = open_text({write("text.txt", text)}, {});
  const auto tokenizer = tokenizers::train_tokenizer({.kind = TokenizerKind::words, .vocabulary_size = 0}, *source);
  write_token_file(*source, *tokenizer, at("text.tokens"));
  const config::DataOptions data{.train = {at("text.tokens")}, .validation_fraction = 0.1};
  const PreparedData prepared = prepare(data, {});
  const TokenFile whole(at("text.tokens")), held_out(prepared.validation.file),
      train(train_of(prepared), "", prepared.train.front().parts);
  EXPECT_GT(whole.documents().size(), 50U);
  EXPECT_EQ(train.size() + held_out.size(), whole.size());
  EXPECT_NEAR(static_cast<double>(held_out.size()), 0.1 * static_cast<double>(whole.size()),
              0.05 * static_cast<double>(whole.size()));
  EXPECT_GT(prepared.train.front().parts.size(), 3U);  // parts from several places
  EXPECT_EQ(held_out.documents().size() + train.documents().size(), whole.documents().size());
  // The parts together are the whole text, and the text gives the same split as its token file.
  std::string rest = tokenizer->decode(first_ids(train, train.size()));
  std::string held = tokenizer->decode(ids_of(held_out));
  EXPECT_EQ(rest.size() + held.size(), tokenizer->decode(ids_of(whole)).size());
  EXPECT_EQ(prepare_validation(data, prepared.tokenizer, folder_ / "cache").file, prepared.validation.file);
}

// An unknown word's length cannot be derived from its token, and dropped spaces are not counted.
TEST_F(PrepareTest, UnknownByteCountsAreNotReported) {
  const auto words = write_words("a  b\nc   d\na b\nc  d\n", "blanks.tokens");
  const PreparedData prepared =
      prepare({.train = {at("blanks.tokens")}, .order = config::Order::given, .validation_fraction = 0.3}, {});
  ASSERT_TRUE(TokenFile(prepared.validation.file).unknown());
  EXPECT_EQ(TokenFile(prepared.validation.file).decoded_bytes(), 4);  // "c d\n"
  write_token_file(*open_text({write("more.txt", "a b\nc other\na b\nc d\n")}, {}), *words, at("unknown.tokens"));
  const PreparedData unknown =
      prepare({.train = {at("unknown.tokens")}, .order = config::Order::given, .validation_fraction = 0.3}, {});
  EXPECT_FALSE(TokenFile(unknown.validation.file).unknown());
  EXPECT_HAS(user_error_of([&] { prepare({.train = {at("blanks.tokens")}, .validation_fraction = 0.0}, {}); }),
             "data.validation: must name at least one file when data.validation_fraction is 0");
}

TEST_F(PrepareTest, AMixtureHasAPartForEachName) {
  const auto tokenizer = write_words("a b c\na b\na\nb c\n", "made.tokens");
  config::DataOptions data{.train = {at("made.tokens"), write("text.txt", "c a\nb\na a\nc b\n")},
                           .mixture = {2, 1},
                           .order = config::Order::given,
                           .validation_fraction = 0.2};
  const PreparedData held_out = prepare(data, {});
  ASSERT_EQ(held_out.train.size(), 2U);
  const auto text_of_part = [&](const PreparedPart& part) {
    const TokenFile file(part.file, "", part.parts);
    return tokenizer->decode(first_ids(file, file.size()));
  };
  EXPECT_EQ(text_of_part(held_out.train[0]) + "|" + text_of_part(held_out.train[1]), "a b c\na b\na\n|c a\nb\na a\n");
  EXPECT_EQ(text_of_part(held_out.validation), "b c\nc b\n");  // a part of each file
  EXPECT_EQ(prepare_validation(data, held_out.tokenizer, folder_ / "cache").file, held_out.validation.file);
  data.validation = {write("validation.txt", "b a\n")};
  const PreparedData named = prepare(data, {});
  EXPECT_EQ(text_of_part(named.train[1]), "c a\nb\na a\nc b\n");
  EXPECT_EQ(text_of_part(named.validation), "b a\n");
  // If all corpora are texts, the tokenizer is trained on all of them.
  data.train = {write("one.txt", "x y\nx\n"), at("text.txt")};
  EXPECT_EQ(prepare(data).tokenizer->serialised(), "<unk>\n<eos>\na\nb\nc\nx\ny\n");
}

TEST_F(PrepareTest, AGivenTokenizerIsUsed) {
  const auto tokenizer = write_words("b a b\n", "other.tokens");
  tokenizers::save_tokenizer(*tokenizer, at("my.tokenizer"));
  config::TokenizerOptions options;
  options.model = at("my.tokenizer");
  const PreparedData prepared = prepare(text_data(), options);
  EXPECT_EQ(prepared.tokenizer->name(), tokenizer->name());
  EXPECT_EQ(ids_of(TokenFile(prepared.validation.file)), tokenizer->encode("b d\n"));
}

}  // namespace headroom::data::prepare_test
