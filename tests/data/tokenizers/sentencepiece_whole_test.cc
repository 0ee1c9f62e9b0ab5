// Tests that imported SentencePiece models encode whole texts like SentencePiece.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include "data/text/support.h"
#include "data/tokenizers/sentencepiece/sentencepiece_model.h"
#include "data/tokens/token_file.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/json.h"

namespace headroom::tokenizers::sentencepiece_whole_test {

using config::TokenizerKind;
using Ids = std::vector<std::int32_t>;

class Corpus : public sentencepiece::SentenceIterator {
 public:
  bool done() const override { return at_ >= 400; }
  void Next() override { ++at_; }
  const std::string& value() const override {
    static const std::string kLines[] = {"The head attends to every token of the room.", "It was 1984, and it's late;",
                                         "  a line with   blanks in it", "\xc3\xa9t\xc3\xa9 d\xc3\xa9j\xc3\xa0 vu"};
    return kLines[at_ % std::size(kLines)];
  }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::size_t at_ = 0;
};

using Settings = std::unordered_map<std::string, std::string>;

// The settings of LLaMA, SentencePiece's defaults and T5. "plain" has no dummy prefix, "suffix" has spaces as suffixes.
const std::pair<const char*, Settings> kModels[] = {
    {"llama",
     {{"model_type", "bpe"},
      {"vocab_size", "340"},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"}}},
    {"defaults", {{"model_type", "bpe"}, {"vocab_size", "70"}}},
    {"unigram", {{"model_type", "unigram"}, {"vocab_size", "310"}, {"byte_fallback", "true"}}},
    {"plain",
     {{"model_type", "bpe"},
      {"vocab_size", "70"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"}}},
    {"suffix", {{"model_type", "bpe"}, {"vocab_size", "70"}, {"treat_whitespace_as_suffix", "true"}}}};

std::string trained(Settings settings) {
  settings.insert({{"minloglevel", "2"}, {"hard_vocab_limit", "false"}});
  Corpus corpus;
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &corpus, &model);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return model;
}

const std::string_view kHostile[] = {"",
                                     "\n",
                                     "\n\n",
                                     " ",
                                     "   \n  ",
                                     "line\nend",
                                     "line\n end\n",
                                     "a\r\nb",
                                     "\ttabs\t\t",
                                     "\xe2\x96\x81",
                                     "\xe2\x96\x81 \xe2\x96\x81x\xe2\x96\x81\n\xe2\x96\x81",
                                     "a \xe2\x96\x81 b",
                                     "<s>The</s><unk><0x0A>",
                                     "nul \xc2\x85 next line \xe2\x80\xa8 and \xe2\x80\xa9",
                                     "\xef\xbb\xbf"
                                     "mark of order",
                                     "\xe3\x80\x80wide\xe3\x80\x80",
                                     "\xc2\xa0\xc2\xa0kept together",
                                     "e\xcc\x81\xcc\x82 \xef\xac\x81ne \xc2\xbd \xc2\xa8 x",
                                     "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x98\x80",
                                     "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab",
                                     "\xe2\x80\x8bzero\xe2\x80\x8b",
                                     "\x01\x1f\x7f",
                                     "The head attends to every token of the room.\nIt was 1984, and it's late;\n"};

class WholeTexts : public FolderTest, public testing::WithParamInterface<std::pair<const char*, Settings>> {
 protected:
  void SetUp() override {
    const std::string model = trained(GetParam().second);
    ASSERT_TRUE(theirs_.LoadFromSerializedProto(model).ok());
    file_ = write("a.model", model);
    ours_ = load_tokenizer(file_);
  }
  Ids expected(std::string_view text) const {
    std::vector<int> ids;
    EXPECT_TRUE(theirs_.Encode(text, &ids).ok());
    return {ids.begin(), ids.end()};
  }

  std::string file_;
  sentencepiece::SentencePieceProcessor theirs_;
  std::unique_ptr<Tokenizer> ours_;
};

TEST_P(WholeTexts, HaveTheIdsOfThePackage) {
  for (const std::string_view text : kHostile) {
    EXPECT_EQ(ours_->encode(text), expected(text)) << text;
  }
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text = random_unicode(random, random.below(20));
    for (std::uint64_t i = random.below(20); i > 0; --i) {
      constexpr std::string_view kPieces[] = {" ", "  ", "\n", "\t", "\xe2\x96\x81", "the", " head", "1", "e\xcc\x81"};
      text += kPieces[random.below(std::size(kPieces))];
    }
    ASSERT_EQ(ours_->encode(text), expected(text)) << text;
    const Ids ids = expected(text);
    std::string theirs;
    ASSERT_TRUE(theirs_.Decode(std::vector<int>(ids.begin(), ids.end()), &theirs).ok());
    EXPECT_EQ(ours_->decode(ids), theirs);
  }
}

class WholeTextsFromJson : public FolderTest {};

TEST_F(WholeTextsFromJson, HaveTheIdsOfTheModel) {
  for (const char* prefix : {"true", "false"}) {
    Settings settings = kModels[0].second;
    settings["add_dummy_prefix"] = prefix;
    const auto model =
        restore_tokenizer(TokenizerKind::sentencepiece, serialised_from_file(trained(settings)), "model");
    const Json json = parse_json(to_tokenizer_json(*model, {.names = {"<unk>", "<s>", "</s>"}}), "json");
    write("tokenizer.json", json.dump());
    const auto again = load_tokenizer(folder_);
    EXPECT_EQ(again->kind(), TokenizerKind::sentencepiece);
    EXPECT_EQ(again->vocabulary_size(), model->vocabulary_size());
    EXPECT_EQ(again->begin_id(), model->begin_id());
    for (const std::string_view text : kHostile) {
      const Ids ids = model->encode(text);
      if (text.find("<s>") == std::string_view::npos) {  // tokenizer.json also finds "<s>" in texts
        EXPECT_EQ(again->encode(text), ids) << text;
      }
      EXPECT_EQ(again->decode(ids), model->decode(ids)) << text;
    }
    EXPECT_EQ(load_tokenizer(folder_, 400)->vocabulary_size(), 400);
    const auto refusal = [&](const char* pointer, const Json& value) {
      Json changed = json;
      changed[Json::json_pointer(pointer)] = value;
      write("tokenizer.json", changed.dump());
      return user_error_of([&] { load_tokenizer(folder_); });
    };
    Json merges = json["model"]["merges"];
    merges.erase(merges.end() - 1);
    EXPECT_HAS(refusal("/model/merges", merges), "model.merges must have all");
    EXPECT_HAS(refusal("/normalizer", {{"type", "NFC"}}), "normalizer has the step");
    EXPECT_HAS(refusal("/pre_tokenizer", {{"type", "ByteLevel"}}), "pre_tokenizer has the step");
    EXPECT_HAS(refusal("/decoder", {{"type", "WordPiece"}}), "decoder has the step");
    EXPECT_HAS(refusal("/added_tokens/0/content", ""), "added_tokens must be tokens");
    EXPECT_HAS(refusal("/added_tokens/0/single_word", true), "added_tokens.single_word is true");
    EXPECT_HAS(refusal("/model/dropout", 0.1), "model.dropout is set");
  }
}

TEST_P(WholeTexts, HaveThemAtAnyLengthAndInTokenFiles) {
  Random random(4);
  std::string text;
  while (text.size() < 700000) {
    constexpr std::string_view kPieces[] = {" the", " head",     "\n",           "  ",  " room", "s it", " a b",
                                            ".",    " \xc3\xa9", "\xe2\x96\x81", " 12", " x y",  "\n\n"};
    text += kPieces[random.below(std::size(kPieces))];
  }
  text += "\n";
  const Ids whole = expected(text);
  EXPECT_EQ(ours_->encode(text), whole);
  const std::string name = write("text.txt", text);
  data::write_token_file(*data::open_text({name}, {}), *ours_, at("text.tokens"), 2);
  const data::TokenFile tokens(at("text.tokens"));
  EXPECT_EQ(tokens.text_bytes(), std::ssize(text));
  Ids stored(static_cast<std::size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), stored.data());
  EXPECT_TRUE(stored == whole);
}

INSTANTIATE_TEST_SUITE_P(Models, WholeTexts, testing::ValuesIn(kModels),
                         [](const auto& one) { return std::string(one.param.first); });

class SentencePieceFiles : public FolderTest {
 protected:
  std::string model_ = trained(kModels[0].second);
};

TEST_F(SentencePieceFiles, SayHowLinesAreEncoded) {
  const auto whole = load_tokenizer(write("a.model", model_));
  const auto by_line = restore_tokenizer(TokenizerKind::sentencepiece, model_, "a trained one");
  EXPECT_EQ(whole->vocabulary_size(), by_line->vocabulary_size());
  EXPECT_NE(whole->encode("line\nend"), by_line->encode("line\nend"));
  EXPECT_NE(whole->name(), by_line->name()) << "the same name would mean the same ids";
  Ids lines = by_line->encode("line");
  lines.push_back(by_line->id_of("<0x0A>"));
  for (const std::int32_t id : by_line->encode("end")) {
    lines.push_back(id);
  }
  EXPECT_EQ(by_line->encode("line\nend"), lines);
  for (const Tokenizer* tokenizer : {whole.get(), by_line.get()}) {
    save_tokenizer(*tokenizer, at("saved"));
    EXPECT_EQ(load_tokenizer(at("saved"))->name(), tokenizer->name());
    EXPECT_EQ(to_sentencepiece_model(*tokenizer), model_) << "the file is as it was";
  }
}

TEST_F(SentencePieceFiles, OfTokenizersTrainedHereKeepTheirIds) {
  const std::string text = "a line\nan end\na line of the end\n";
  const auto own = train_tokenizer({.vocabulary_size = 272}, *data::open_text({write("t.txt", text)}, {}));
  const auto again = load_tokenizer(write("tokenizer.model", to_sentencepiece_model(*own)));
  EXPECT_EQ(again->name(), own->name());
  EXPECT_EQ(again->encode("line\n end"), own->encode("line\n end"));
}

TEST_F(SentencePieceFiles, WholeLinesOfTheirTokenFilesAreHeldOut) {
  const auto tokenizer = load_tokenizer(write("a.model", model_));
  ASSERT_NE(tokenizer->encode("\n").size(), 1U) << "a blank before it, which it has at the beginning alone";
  std::string text;
  for (int line = 0; line < 40; ++line) {
    text += fmt::format("the head {}\n", line);
  }
  data::write_token_file(*data::open_text({write("text.txt", text)}, {}), *tokenizer, at("text.tokens"));
  const data::PreparedData prepared = data::prepare_data(
      {.train = {at("text.tokens")}, .order = config::Order::given, .validation_fraction = 0.2}, {}, folder_ / "cache");
  const data::TokenFile file(at("text.tokens"));
  Ids ids(static_cast<std::size_t>(file.size()));
  file.copy(0, file.size(), ids.data());
  const auto fifth = static_cast<std::int64_t>(0.2 * static_cast<double>(file.size()));
  ASSERT_NE(ids.at(static_cast<std::size_t>(file.size() - fifth - 1)), tokenizer->line_end_id());
  EXPECT_EQ(ids.at(static_cast<std::size_t>(prepared.train.front().parts.back().end - 1)), tokenizer->line_end_id());
}

TEST_F(SentencePieceFiles, AreFoundInFolders) {
  write("tokenizer.model", model_);
  EXPECT_EQ(to_sentencepiece_model(*load_tokenizer(folder_)), model_);
  write("tokenizer.json", "{}");  // the same tokenizer for other programs
  EXPECT_EQ(to_sentencepiece_model(*load_tokenizer(folder_)), model_);
  const std::int64_t size = load_tokenizer(folder_)->vocabulary_size();
  const auto padded = load_tokenizer(folder_, size + 7);  // a model may have more ids than its tokenizer
  EXPECT_EQ(padded->vocabulary_size(), size + 7);
  EXPECT_EQ(padded->encode("a <spare 3>\nb"), load_tokenizer(folder_)->encode("a <spare 3>\nb"));
  EXPECT_EQ(restore_tokenizer(config::TokenizerKind::sentencepiece, padded->serialised(), "x")->vocabulary_size(),
            size + 7);
  EXPECT_EQ(load_tokenizer(folder_ / "tokenizer.model", size + 7)->serialised(), padded->serialised());
  write("tokenizer.model", "IQ== 0\nIg== 1\n");  // another program's format under this name
  EXPECT_HAS(user_error_of([&] { load_tokenizer(folder_); }), "tokenizer.json");
}

}  // namespace headroom::tokenizers::sentencepiece_whole_test
