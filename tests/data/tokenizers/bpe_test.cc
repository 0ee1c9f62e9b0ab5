#include "data/text/support.h"
#include "data/tokenizers/bpe/model.h"
#include "data/tokenizers/patterns.h"
#include "data/tokens/token_file.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/json.h"

namespace headroom::tokenizers::bpe_test {

using config::TokenizerKind;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kFirstMerge = 256;

// Each byte's id is its value. The results of these merges have the following ids, in order.
std::vector<std::pair<std::string, std::string>> merges() {
  return {{"h", "e"}, {"l", "l"},  {"he", "ll"}, {"hell", "o"}, {"\xc4\xa0", "w"}, {"\xc3\x83", "\xc2\xa9"},
          {"a", "a"}, {"aa", "aa"}};
}

Json vocabulary() {
  Json tokens = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    tokens[character_of_byte(static_cast<unsigned char>(byte))] = byte;
  }
  for (const auto& [left, right] : merges()) {
    tokens[left + right] = tokens.size();
  }
  return tokens;
}

Json document() {
  Json pairs = Json::array();
  for (const auto& [left, right] : merges()) {
    pairs.push_back(left + " " + right);
  }
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Json::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr}, {"vocab", vocabulary()}, {"merges", pairs}}}};
}

Json added(std::int32_t id, const std::string& content, bool normalised) {
  return {{"id", id},        {"content", content},       {"single_word", false},  {"lstrip", false},
          {"rstrip", false}, {"normalized", normalised}, {"special", !normalised}};
}

std::unique_ptr<Tokenizer> tokenizer(const Json& json) {
  return restore_tokenizer(TokenizerKind::bpe, json.dump(), "x.json");
}

Ids ids_of(const Json& json, std::string_view text) {
  return tokenizer(json)->encode(text);
}

class BpeTest : public FolderTest {};

TEST_F(BpeTest, MergesInTheOrderLearnt) {
  const auto bpe = tokenizer(document());
  EXPECT_EQ(bpe->vocabulary_size(), kFirstMerge + std::ssize(merges()));
  EXPECT_EQ(bpe->encode("hello"), (Ids{259}));
  EXPECT_EQ(bpe->encode("hell hel"), (Ids{258, ' ', 256, 'l'}));
  EXPECT_EQ(bpe->encode(" w\xc3\xa9"), (Ids{260, 261}));
  EXPECT_EQ(bpe->encode("aaaaaaa"), (Ids{263, 262, 'a'}));
  EXPECT_EQ(bpe->encode("o h"), (Ids{'o', ' ', 'h'}));  // merges stay within a word
  EXPECT_EQ(bpe->encode(""), Ids());
  EXPECT_EQ(bpe->decode(Ids{259, 260, 0xc3, 0xa9, 0}), std::string("hello w\xc3\xa9\0", 10));
  EXPECT_HAS(user_error_of([&] { bpe->decode(Ids{264}); }), "an id must be 0 to 263, got 264");
  EXPECT_HAS(user_error_of([&] { bpe->encode("a\xff"); }), "not valid UTF-8");
  EXPECT_TRUE(bpe->name().starts_with("bpe-264-")) << bpe->name();
}

TEST_F(BpeTest, LongWordsMergeAsShortOnes) {
  const auto bpe = tokenizer(document());
  for (const std::size_t n : {5U, 31U, 32U, 33U, 64U, 1001U, 100000U}) {
    const Ids ids = bpe->encode(std::string(n, 'a'));
    Ids expected(n / 4, 263);
    if (n % 4 >= 2) {
      expected.push_back(262);
    }
    if (n % 2 == 1) {
      expected.push_back('a');
    }
    EXPECT_EQ(ids, expected) << n;
  }
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += "hellohehelaa";
  }
  Ids expected;
  for (int i = 0; i < 20; ++i) {
    const Ids once = bpe->encode("hellohehelaa");
    expected.insert(expected.end(), once.begin(), once.end());
  }
  EXPECT_EQ(bpe->encode(text), expected);
}

TEST_F(BpeTest, AddedTokensAreFoundInTheText) {
  Json json = document();
  json["added_tokens"] = {added(264, "<|end|>", false), added(265, "<|end|>x", false), added(266, "  ", true),
                          added(267, "   ", true), added(259, "hello", false)};
  const auto bpe = tokenizer(json);
  EXPECT_EQ(bpe->vocabulary_size(), 268);
  EXPECT_EQ(bpe->encode("a<|end|>b<|end|>xy<|end|"), (Ids{'a', 264, 'b', 265, 'y', '<', '|', 'e', 'n', 'd', '|'}));
  EXPECT_EQ(bpe->encode("a     b"), (Ids{'a', 267, 266, 'b'}));
  EXPECT_EQ(bpe->encode("ahellohe"), (Ids{'a', 259, 256}));
  EXPECT_EQ(bpe->decode(Ids{264, 267, 'a'}), "<|end|>   a");
}

TEST_F(BpeTest, WholeWordsComeFirstIfRequested) {
  Json json = document();
  json["model"]["vocab"]["xyz"] = 264;  // no merge makes it
  EXPECT_EQ(ids_of(json, "xyz"), (Ids{'x', 'y', 'z'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(ids_of(json, "xyz xyz"), (Ids{264, ' ', 'x', 'y', 'z'}));
}

TEST_F(BpeTest, SplitsInSteps) {
  Json json = document();
  const auto ids = [&](const Json& steps, std::string_view text) {
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    json["pre_tokenizer"]["pretokenizers"].push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}});
    const auto bpe = tokenizer(json);
    EXPECT_EQ(bpe->serialised(), restore_tokenizer(TokenizerKind::bpe, bpe->serialised(), "x")->serialised());
    return bpe->encode(text);
  };
  EXPECT_EQ(ids(Json::array(), "hell1o"), (Ids{258, '1', 'o'}));
  const Json split = {{"type", "Split"}, {"pattern", {{"String", "l."}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_EQ(ids(Json::array({split}), "hell.o hello"), (Ids{256, 'l', 'l', '.', 'o', ' ', 259}));
  EXPECT_EQ(ids(Json::array({{{"type", "Digits"}, {"individual_digits", true}}, split}), "hel1.l."),
            (Ids{256, 'l', '1', '.', 'l', '.'}));
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  EXPECT_EQ(ids(Json::array({split}), "e\xcc\x81"), (Ids{'e', 0xcc, 0x81}));
  json["normalizer"]["normalizers"] = {{{"type", "NFC"}}};
  EXPECT_EQ(ids(Json::array({split}), "e\xcc\x81"), (Ids{261}));
}

TEST_F(BpeTest, NormalisesToNfcIfRequested) {
  Json json = document();
  json["added_tokens"] = {added(264, "e\xcc\x81!", false)};
  EXPECT_EQ(ids_of(json, "e\xcc\x81"), (Ids{'e', 0xcc, 0x81}));
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(ids_of(json, "e\xcc\x81"), (Ids{261}));
  EXPECT_EQ(ids_of(json, "e\xcc\x81!"), (Ids{264}));  // matched before the text is normalised
  EXPECT_EQ(ids_of(json, "\xe1\x84\x80\xe1\x85\xa1"), (Ids{0xea, 0xb0, 0x80}));
}

TEST_F(BpeTest, IsSavedAndLoaded) {
  Json json = document();
  json["added_tokens"] = {added(264, "<|end|>", false)};
  json["normalizer"] = {{"type", "NFC"}};
  json["post_processor"] = {{"type", "ByteLevel"}, {"trim_offsets", false}};
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", std::string(kQwen2Words)}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}};
  const auto bpe = load_tokenizer(write("tokenizer.json", json.dump()));
  EXPECT_EQ(bpe->encode("1234 hello<|end|>"), (Ids{'1', '2', '3', '4', ' ', 259, 264}));
  save_tokenizer(*bpe, at("saved.tokenizer"));
  for (const auto& again : {load_tokenizer(at("saved.tokenizer")), load_tokenizer(folder_),
                            restore_tokenizer(TokenizerKind::bpe, bpe->serialised(), "again")}) {
    EXPECT_EQ(again->name(), bpe->name());
    EXPECT_EQ(again->serialised(), bpe->serialised());
    EXPECT_EQ(again->encode("1234 hello<|end|>"), bpe->encode("1234 hello<|end|>"));
  }
  EXPECT_EQ(to_tokenizer_json(*bpe), bpe->serialised());
}

// A vocabulary may have a character that spells no byte, such as a line end. The encoder never returns such a token.
TEST_F(BpeTest, TokensThatSpellNoBytesAreNotEncoded) {
  Json json = document();
  json["model"]["vocab"]["\n"] = 264;
  json["model"]["vocab"][" "] = 265;
  const auto bpe = tokenizer(json);
  EXPECT_EQ(bpe->encode("o\n w"), tokenizer(document())->encode("o\n w"));
  EXPECT_EQ(bpe->decode(Ids{264, 265}), "\n ");
}

TEST_F(BpeTest, UnusedIdsDecodeToNothing) {
  write("tokenizer.json", document().dump());
  const auto bpe = load_tokenizer(folder_, 300);
  EXPECT_EQ(bpe->vocabulary_size(), 300);
  EXPECT_EQ(bpe->decode(Ids{'a', 299, 264, 'b'}), "ab");
  EXPECT_EQ(restore_tokenizer(TokenizerKind::bpe, bpe->serialised(), "x")->vocabulary_size(), 300);
  EXPECT_EQ(to_tokenizer_json(*bpe), load_tokenizer(folder_)->serialised());
  EXPECT_EQ(load_tokenizer(folder_, 7)->vocabulary_size(), 264);
}

TEST_F(BpeTest, VocabularyAndMergesEqualTokenizerJson) {
  Json tokens = vocabulary();
  tokens["<|endoftext|>"] = 264;
  std::string lines = "#version: 0.2\n";
  for (const auto& [left, right] : merges()) {
    lines += left + " " + right + "\n";
  }
  write("a/vocab.json", tokens.dump());
  write("a/merges.txt", lines);
  write("b/encoder.json.gz", data::gzip(tokens.dump()));
  write("b/vocab.bpe.gz", data::gzip(lines));
  for (const char* path : {"a", "a/vocab.json", "b", "b/encoder.json.gz"}) {
    const auto bpe = load_tokenizer(at(path));
    EXPECT_EQ(bpe->encode("hello<|endoftext|>"), (Ids{259, 264})) << path;
    EXPECT_EQ(bpe->name(), load_tokenizer(at("a"))->name());
  }
  write("c/vocab.json", tokens.dump());
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("c")); }), "neither merges.txt nor vocab.bpe is next to it");
  write("c/merges.txt", lines + "h  e\n");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("c")); }), "merges.txt: line 10: must be two tokens");
  write("c/merges.txt", lines + "h zz\n");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("c")); }), "merges.txt: line 10: names the token \"zz\"");
  std::filesystem::create_directories(folder_ / "d");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("d")); }),
             "holds no tokenizer: neither tokenizer.json nor vocab.json");
  write("d/tokenizer.json", "[]");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("d")); }), "tokenizer.json: not a tokenizer: must be a JSON object");
  write("d/tokenizer.json", "{\"hello\": 1}");
  EXPECT_HAS(user_error_of([&] { load_tokenizer(at("d")); }), "tokenizer.json: unknown setting hello");
}

// The ids must equal transformers'. Settings that would change ids are refused.
TEST_F(BpeTest, FilesNextToVocabularyAndMergesAreRead) {
  Json tokens = vocabulary();
  tokens["12"] = 264;
  tokens["<|endoftext|>"] = 265;
  tokens["<|padding|>"] = 266;
  write("vocab.json", tokens.dump());
  write("merges.txt", "h e\n1 2\n");
  const auto ids = [&](const std::string& text) { return load_tokenizer(folder_)->encode(text); };
  const auto refusal = [&] { return user_error_of([&] { load_tokenizer(folder_); }); };
  EXPECT_EQ(ids("12"), Ids{264});
  EXPECT_EQ(ids("<|endoftext|>"), Ids{265});
  EXPECT_NE(ids("<|padding|>"), Ids{266});

  // The model type determines the tokenizer class, unless tokenizer_config.json names a class.
  write("config.json", R"({"model_type": "qwen2"})");
  EXPECT_EQ(ids("12"), (Ids{'1', '2'}));
  EXPECT_EQ(ids("e\xcc\x81"), ids("\xc3\xa9")) << "composed";
  write("tokenizer_config.json", R"({"tokenizer_class": "GPT2TokenizerFast"})");
  EXPECT_EQ(ids("12"), Ids{264});
  EXPECT_NE(ids("e\xcc\x81"), ids("\xc3\xa9"));
  write("tokenizer_config.json", R"({"tokenizer_class": "GPTNeoXTokenizer"})");
  EXPECT_EQ(ids("<|padding|>"), Ids{266});
  write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizer"})");
  EXPECT_HAS(refusal(), "tokenizer_config.json: tokenizer_class is RobertaTokenizer");
  write("tokenizer_config.json", "{}");
  write("config.json", R"({"model_type": "llama"})");
  EXPECT_HAS(refusal(), "config.json: model_type is llama");
  write("config.json", "{}");

  write("added_tokens.json", R"({"<|im_start|>": 267})");
  EXPECT_EQ(ids("<|im_start|>he"), (Ids{267, 256}));
  write("added_tokens.json", R"({"<|im_start|>": "x"})");
  EXPECT_HAS(refusal(), "added_tokens.json: <|im_start|> must be an id");
  write("added_tokens.json", R"({"<|im_start|>": 300})");
  EXPECT_HAS(refusal(), "the token \"<|im_start|>\" has the id 300");
  write("added_tokens.json", "{}");
  const auto decoder = [&](const std::string& more) {
    write("tokenizer_config.json",
          R"({"added_tokens_decoder": {"267": {"content": "<|x|>", "special": true)" + more + "}}}");
  };
  decoder("");
  EXPECT_EQ(ids("<|x|>he"), (Ids{267, 256}));
  decoder(R"(, "lstrip": true)");
  EXPECT_HAS(refusal(), "tokenizer_config.json: added_tokens_decoder.267: lstrip is true");
  write("tokenizer_config.json", R"({"additional_special_tokens": ["<|padding|>"], "eos_token": {"content": "ll"}})");
  EXPECT_EQ(ids("ll<|padding|>"), (Ids{257, 266}));
  write("tokenizer_config.json", R"({"pad_token": "<|pad|>", "bos_token": "<|begin|>"})");
  EXPECT_EQ(ids("<|begin|><|pad|>"), (Ids{267, 268})) << "after the vocabulary, in the order of the class";
  EXPECT_EQ(load_tokenizer(folder_, 268)->encode("<|begin|>"), Ids{267});
  EXPECT_EQ(load_tokenizer(folder_, 268)->vocabulary_size(), 268) << "no room for <|pad|>";
  write("tokenizer_config.json", R"({"add_prefix_space": true})");
  EXPECT_HAS(refusal(), "tokenizer_config.json: add_prefix_space is true");
}

// transformers 5.24 gives the same ids: it adds the default tokens of a class after the vocabulary.
TEST_F(BpeTest, TokensOfTheClassAreAddedToTokenizerJson) {
  write("tokenizer.json", document().dump());
  const auto size = [&] { return load_tokenizer(folder_)->vocabulary_size(); };
  const std::int64_t plain = size();
  const auto id = static_cast<std::int32_t>(plain);
  write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_EQ(size(), plain);
  write("tokenizer_config.json", R"({"tokenizer_class": "GPTNeoXTokenizerFast"})");
  EXPECT_EQ(load_tokenizer(folder_)->encode("<|endoftext|><|padding|>"), (Ids{id, id + 1}));
  write("tokenizer_config.json", R"({"eos_token": "<x>"})");
  for (const auto& [type, ids] : {std::pair("gpt2", Ids{id, id + 1}), std::pair("qwen2", Ids{id + 1, id})}) {
    write("config.json", Json({{"model_type", type}}).dump());
    EXPECT_EQ(load_tokenizer(folder_)->encode("<|endoftext|><x>"), ids) << type;
  }
  write("tokenizer_config.json", R"({"bos_token": null, "eos_token": null, "unk_token": null, "pad_token": null})");
  EXPECT_EQ(size(), plain);
}

TEST_F(BpeTest, BytesAreBpeWithoutMerges) {
  const auto bytes = restore_tokenizer(TokenizerKind::bytes, "", "x");
  const auto bpe = restore_tokenizer(TokenizerKind::bpe, to_tokenizer_json(*bytes), "y");
  EXPECT_EQ(bpe->vocabulary_size(), 256);
  EXPECT_EQ(bpe->encode("h\xc3\xa9 \n"), bytes->encode("h\xc3\xa9 \n"));
}

// Encoding the separable parts of a text must give the ids of the whole text.
TEST_F(BpeTest, ChunksGiveTheIdsOfTheWholeText) {
  constexpr const char* kPieces[] = {" ", "  ",  "\n", "\n\n",    "\r\n",     "\t",        "hello",    "a", "12345",
                                     ".", "...", "'s", "<|end|>", "\xc3\xa9", "e\xcc\x81", "\xc2\xa0", "(", "x"};
  Random random(5);
  for (const patterns::Patterns& pattern : patterns::kAll) {
    Json json = document();
    json["added_tokens"] = {added(264, "<|end|>", false), added(265, "  ", true)};
    json["normalizer"] = {{"type", "NFC"}};
    BpeModel model = parse_tokenizer_json(json.dump(), "x");
    model.words = pattern;
    const auto bpe = restore_tokenizer(TokenizerKind::bpe, to_tokenizer_json(model), "x");
    std::string text;
    Ids apart;
    std::string rest;
    std::size_t cuts = 0;
    for (int i = 0; i < 5000; ++i) {
      const char* piece = kPieces[random.below(std::size(kPieces))];
      text += piece;
      rest += piece;
      if (const std::size_t cut = bpe->separable(rest).end; cut > 0) {
        bpe->encode(std::string_view(rest).substr(0, cut), apart);
        rest.erase(0, cut);
        ++cuts;
      }
    }
    bpe->encode(rest, apart);
    EXPECT_EQ(apart, bpe->encode(text));
    EXPECT_GT(cuts, 500U);
  }
  // A cut can split an added token that contains a space.
  Json json = document();
  json["added_tokens"] = {added(264, "a b", false)};
  EXPECT_EQ(tokenizer(json)->separable("hello hello\n").end, 0U);
}

TEST_F(BpeTest, AnotherKindIsRefused) {
  const auto text = data::open_text({write("a.txt", "a")}, {});
  config::DataOptions data;
  data.train = data.validation = {at("a.txt")};
  const auto words = train_tokenizer({.kind = TokenizerKind::words, .vocabulary_size = 0}, *text);
  save_tokenizer(*words, at("words.tokenizer"));
  EXPECT_HAS(user_error_of([&] {
               data::prepare_data(data, {.kind = TokenizerKind::bpe, .model = at("words.tokenizer")},
                                  folder_ / "cache");
             }),
             "must be a byte-level BPE tokenizer");
}

struct Refusal {
  std::string path, value, says;
};

TEST_F(BpeTest, RefusesUnsupportedSettingsByName) {
  const Refusal all[] = {
      {"/model/type", R"("Unigram")", "x.json: model is of type Unigram"},
      {"/model/dropout", "0.1", "model.dropout is set"},
      {"/model/byte_fallback", "true", "model.byte_fallback is set"},
      {"/model/continuing_subword_prefix", R"("##")", "model.continuing_subword_prefix is set"},
      {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix is set"},
      {"/model/novelty", "1", "unknown setting model.novelty"},
      {"/novelty", "1", "x.json: unknown setting novelty"},
      {"/normalizer", R"({"type":"Lowercase"})", "normalizer is Lowercase: only NFC"},
      {"/truncation", R"({"max_length":3})", "truncation is set"},
      {"/padding", R"({"length":3})", "padding is set"},
      {"/pre_tokenizer", "null", "pre_tokenizer is missing"},
      {"/pre_tokenizer", R"({"type":"Whitespace"})", "pre_tokenizer has the step Whitespace: only ByteLevel"},
      {"/pre_tokenizer/add_prefix_space", "true", "pre_tokenizer.add_prefix_space is true"},
      {"/pre_tokenizer/use_regex", "false", "pre_tokenizer has ByteLevel without use_regex"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"ByteLevel"}]})",
       "pre_tokenizer.add_prefix_space is true"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":5},{"type":"ByteLevel"}]})",
       "pre_tokenizer.type must be a string"},
      {"/pre_tokenizer", R"({"type":"Sequence","pretokenizers":[{"type":"Digits"}]})", "must end with ByteLevel"},
      {"/pre_tokenizer",
       R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"x+"},"behavior":"Removed"},)"
       R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]})",
       "pre_tokenizer must have the behavior Isolated"},
      {"/decoder", R"({"type":"Metaspace"})", "decoder is Metaspace"},
      {"/added_tokens", R"([{"id":264,"content":"a","lstrip":true}])", "added_tokens.lstrip is true for \"a\""},
      {"/added_tokens", R"([{"id":264,"content":""}])", "a token of 0 bytes"},
      {"/added_tokens", R"([{"id":3,"content":"new"}])", "the id 3 of the token \"new\" is also that of another"},
      {"/added_tokens", R"([{"id":999,"content":"new"}])", "has the id 999, but there are only 265 tokens"},
      {"/added_tokens", R"([{"id":3,"content":"hello"}])", "has the id 259 in the vocabulary, but 3 among"},
      {"/added_tokens", R"([{"id":-1,"content":"new"}])", "added_tokens.id must be an id"},
      {"/added_tokens", "7", "added_tokens must be a list"},
      {"/model/vocab/new", "7", "is also that of another one"},
      {"/model/vocab/new", "4000000000", "must be an id from 0"},
      {"/model/vocab/new", "2000000000", "has the id 2000000000, but there are only 265 tokens"},
      {"/model/vocab/new", R"("7")", "must be an id"},
      {"/model/vocab", "[]", "model.vocab must be a JSON object"},
      {"/model/vocab", "{}", "model.vocab must be a JSON object"},
      {"/model/merges/0", R"("h zz")", "merge 1: names the token \"zz\""},
      {"/model/merges/0", R"("a b")", "merge 1: names the token \"ab\""},
      {"/model/merges/0", R"("hello")", "which number 1 is not"},
      {"/model/merges/0", R"(["h"])", "which number 1 is not"},
      {"/model/merges/0", "3", "which number 1 is not"},
      {"/model/merges", "3", "model.merges must be a list"},
      {"/spare_ids", "2147483647", "spare_ids must be ids below 2^31"},
      {"/model", "3", "model"},
      {"", "[]", "must be a JSON object"}};
  for (const Refusal& refusal : all) {
    Json json = document();
    json[Json::json_pointer(refusal.path)] = Json::parse(refusal.value);
    EXPECT_HAS(user_error_of([&] { tokenizer(json); }), refusal.says);
  }
  const auto text = [](std::string_view bytes) {
    return user_error_of([&] { restore_tokenizer(TokenizerKind::bpe, std::string(bytes), "x.json"); });
  };
  EXPECT_HAS(text(""), "not valid JSON");
  EXPECT_HAS(text(std::string(100, '[')), "nested deeper than 64");
  EXPECT_HAS(text("{\"model\":{\"vocab\":{\"a\":0,\"a\":1}}}"), "occurs twice");
  EXPECT_HAS(text("{\"\xff\":1}"), "not valid JSON");
}

TEST_F(BpeTest, BytesWithoutATokenAreReported) {
  Json json = document();
  json["model"]["vocab"] = {{"a", 0}, {"b", 1}};
  json["model"]["merges"] = Json::array();
  EXPECT_EQ(ids_of(json, "ab"), (Ids{0, 1}));
  EXPECT_HAS(user_error_of([&] { ids_of(json, "abc"); }), "the byte 0x63, which is not in its vocabulary");
  json["model"]["unk_token"] = "b";
  EXPECT_HAS(user_error_of([&] { tokenizer(json); }), "model.unk_token replaces bytes without a token");
}

}  // namespace headroom::tokenizers::bpe_test
