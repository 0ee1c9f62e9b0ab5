// Reads a tokenizer.json with byte fallback, such as LLaMA's. Prefixes, added tokens and decoders must follow the
// package `tokenizers`.
#include "data/text/support.h"
#include "foundation/core/text/utf8.h"
#include "headroom/core/json.h"

namespace headroom::tokenizers::json_tokenizer_test {

using Ids = std::vector<std::int32_t>;

constexpr const char* kPrepends = R"({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"},
  {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})";
constexpr const char* kEscapes = R"({"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"})";
constexpr const char* kSplitAtBlanks =
    R"({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})";
constexpr const char* kStrips =
    R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"},
  "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
constexpr const char* kKeeps = R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "\u2581"},
  "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]})";
constexpr const char* kOldDecoder = R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"},
  {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": false}]})";

std::string metaspace(const char* more) {
  return std::string(R"({"type": "Metaspace", "replacement": "\u2581", )") + more + "}";
}

struct Steps {
  const char* name;
  std::string normalizer, pre_tokenizer, decoder;
};
const Steps kSteps[] = {{"legacy", kPrepends, "null", kStrips},
                        {"first", "null", metaspace(R"("prepend_scheme": "first", "split": false)"), kStrips},
                        {"always", "null", metaspace(R"("prepend_scheme": "always", "split": false)"), kStrips},
                        {"never", "null", metaspace(R"("prepend_scheme": "never", "split": false)"), kKeeps},
                        {"old", "null", metaspace(R"("add_prefix_space": true)"), kOldDecoder},
                        {"gemma", kEscapes, kSplitAtBlanks, kKeeps}};

Json document(const std::string& name) {
  Json vocabulary = Json::object(), merges = Json::array(), added = Json::array();
  for (const char* token : {"<unk>", "<s>", "</s>"}) {
    added.push_back({{"id", vocabulary.size()}, {"content", token}, {"normalized", false}, {"special", true}});
    vocabulary[token] = vocabulary.size();
  }
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[fmt::format("<0x{:02X}>", byte)] = vocabulary.size();
  }
  for (const char* token : {"\u2581", "a", "b", "c", "f", "o", "."}) {
    vocabulary[token] = vocabulary.size();
  }
  const std::pair<const char*, const char*> pairs[] = {{"\u2581", "\u2581"},
                                                       {"\u2581", "a"},
                                                       {"a", "b"},
                                                       {"\u2581", "ab"},
                                                       {"\u2581a", "b"},
                                                       {"o", "o"},
                                                       {"f", "o"},
                                                       {"fo", "o"},
                                                       {"f", "oo"},
                                                       {"\u2581\u2581", "\u2581"},
                                                       {"\u2581", "\u2581\u2581"}};
  for (const auto& [left, right] : pairs) {
    const std::string whole = std::string(left) + right;
    if (!vocabulary.contains(whole)) {
      vocabulary[whole] = vocabulary.size();
    }
    merges.push_back(Json::array({left, right}));
  }
  std::size_t next = vocabulary.size();
  for (const char* token : {R"({"content": "acb", "normalized": true, "special": false})",
                            R"({"content": "ba c", "normalized": false, "special": false, "rstrip": true})",
                            R"({"content": "XX", "normalized": true, "special": true})",
                            R"({"content": "YY", "normalized": false, "special": true, "lstrip": true})"}) {
    added.push_back(Json::parse(token));
    added.back()["id"] = next++;
  }
  const Steps& steps =
      *std::find_if(std::begin(kSteps), std::end(kSteps), [&](const Steps& s) { return s.name == name; });
  return {{"added_tokens", added},
          {"normalizer", Json::parse(steps.normalizer)},
          {"pre_tokenizer", Json::parse(steps.pre_tokenizer)},
          {"decoder", Json::parse(steps.decoder)},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", merges}}}};
}

class JsonTokenizers : public FolderTest {
 protected:
  std::unique_ptr<Tokenizer> tokenizer(const std::string& name) {
    write("tokenizer.json", document(name).dump());
    return load_tokenizer(folder_);
  }
};

// The ids were computed with the package `tokenizers` 0.23, for all of `steps`.
const struct {
  std::string steps;
  const char* text;
  Ids ids;
  const char* decoded;
} kCases[] = {
    {"legacy first always old", "a b", {267, 259, 261}, "a b"},
    {"legacy", " a", {266, 260}, " a"},
    {"legacy", "   ab", {266, 266, 268}, "   ab"},
    {"legacy always old", "a</s>ab", {267, 2, 269}, "a ab"},
    {"legacy", "a</s> a", {267, 2, 266, 260}, "a  a"},
    {"legacy", " </s>b", {266, 2, 259, 261}, "  b"},
    {"legacy first always old", "a\n b", {267, 13, 259, 261}, "a\n b"},
    {"legacy first always old", "\xc3\xa9", {259, 198, 172}, "\xc3\xa9"},
    {"legacy", " acb YY foo", {259, 274, 277, 266, 272}, " acb  foo"},
    {"first always old", " a", {267}, "a"},
    {"first always", "   ab", {266, 269}, "  ab"},
    {"first", "a</s>ab", {267, 2, 268}, "aab"},
    {"first always old", "a</s> a", {267, 2, 267}, "a a"},
    {"first", " </s>b", {259, 2, 261}, "b"},
    {"first always old", " acb YY foo", {259, 274, 277, 259, 272}, "acb foo"},
    {"always old", " </s>b", {259, 2, 259, 261}, " b"},
    {"never gemma", "a b", {260, 259, 261}, "a b"},
    {"never gemma", " a", {267}, " a"},
    {"never gemma", "   ab", {266, 269}, "   ab"},
    {"never gemma", "a</s>ab", {260, 2, 268}, "aab"},
    {"never gemma", "a</s> a", {260, 2, 267}, "a a"},
    {"never gemma", " </s>b", {259, 2, 261}, " b"},
    {"never gemma", "a\n b", {260, 13, 259, 261}, "a\n b"},
    {"never gemma", "\xc3\xa9", {198, 172}, "\xc3\xa9"},
    {"never gemma", " acb YY foo", {259, 274, 277, 259, 272}, " acb foo"},
    {"old", "   ab", {259, 259, 269}, "  ab"},
};

TEST_F(JsonTokenizers, HaveTheIdsAndTextsOfThePackage) {
  int checked = 0;
  for (const Steps& steps : kSteps) {
    const auto ours = tokenizer(steps.name);
    for (const auto& one : kCases) {
      if (one.steps.find(steps.name) != std::string::npos) {
        EXPECT_EQ(ours->encode(one.text), one.ids) << steps.name << ": " << one.text;
        EXPECT_EQ(ours->decode(one.ids), one.decoded) << steps.name << ": " << one.text;
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 54) << "each text with all steps";
}

// Every byte has a token, so that no text is unknown.
TEST_F(JsonTokenizers, NeedNoUnknownToken) {
  const auto named = tokenizer("first");
  for (const bool with_unk : {true, false}) {
    Json json = document("first");
    json["model"]["unk_token"] = nullptr;
    if (!with_unk) {
      json["added_tokens"][0]["content"] = "<pad>";
      json["model"]["vocab"].erase("<unk>");
      json["model"]["vocab"]["<pad>"] = 0;
    }
    write("tokenizer.json", json.dump());
    const auto ours = load_tokenizer(folder_);
    for (const auto& one : kCases) {
      EXPECT_EQ(ours->encode(one.text), named->encode(one.text));
      EXPECT_EQ(ours->decode(one.ids), named->decode(one.ids));
    }
    EXPECT_EQ(ours->encode(with_unk ? "<unk>" : "<pad>"), Ids{0});
    EXPECT_EQ(ours->decode(Ids{0}), "");
  }
}

TEST_F(JsonTokenizers, RefuseASplitThatFindsBlanks) {
  Json json = document("never");
  json["pre_tokenizer"] = Json::parse(kSplitAtBlanks);
  write("tokenizer.json", json.dump());
  EXPECT_HAS(user_error_of([&] { load_tokenizer(folder_); }), "pre_tokenizer has the step {\"behavior\"");
}

TEST_F(JsonTokenizers, SurviveBeingStoredAndExported) {
  for (const Steps& steps : kSteps) {
    const auto ours = tokenizer(steps.name);
    const auto stored = restore_tokenizer(ours->kind(), ours->serialised(), "stored");
    EXPECT_EQ(stored->name(), ours->name());
    write("tokenizer.json", to_tokenizer_json(*ours, {.names = {"<s>", "</s>"}}));
    const auto exported = load_tokenizer(folder_);
    for (const auto& one : kCases) {
      EXPECT_EQ(stored->encode(one.text), ours->encode(one.text));
      EXPECT_EQ(exported->encode(one.text), ours->encode(one.text));
      EXPECT_EQ(exported->decode(one.ids), ours->decode(one.ids));
    }
  }
}

// The texts of single tokens must join to the text of all tokens.
TEST_F(JsonTokenizers, DecodeTokenByToken) {
  Random random(5);
  for (const Steps& steps : kSteps) {
    const auto ours = tokenizer(steps.name);
    for (int round = 0; round < 200; ++round) {
      Ids ids;
      std::string text;
      for (int i = 0; i < 12; ++i) {
        const auto id = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(ours->vocabulary_size())));
        text += text_after(*ours, ids, id);
        ids.push_back(id);
      }
      ASSERT_EQ(text, ours->decode(ids)) << steps.name;
    }
  }
}

TEST_F(JsonTokenizers, EncodeLongTextsInParts) {
  std::string text;
  Random random(6);
  while (text.size() < 300000) {
    constexpr std::string_view kPieces[] = {" a", " foo",      "  ",   "\n",    " b a",
                                            ".",  " \xc3\xa9", " acb", "ab ab", "\xe2\x96\x81"};
    text += kPieces[random.below(std::size(kPieces))];
  }
  for (const Steps& steps : kSteps) {
    Json json = document(steps.name);
    json["added_tokens"].erase(4);  // "ba c", which spans a blank
    json["added_tokens"].erase(5);  // "YY", which strips blanks
    json["added_tokens"][4]["id"] = 275;
    write("tokenizer.json", json.dump());
    const auto ours = load_tokenizer(folder_);
    const Ids whole = ours->encode(text);
    Ids parts;
    std::string_view rest = text;
    std::size_t n_parts = 0;
    while (rest.size() > 5000) {
      const Cut cut = ours->separable(rest.substr(0, 5000));
      ASSERT_GT(cut.end, 0U) << steps.name;
      ours->encode(rest.substr(0, cut.end), parts);
      rest.remove_prefix(cut.next);
      ++n_parts;
    }
    ours->encode(rest, parts);
    EXPECT_GT(n_parts, 50U);
    EXPECT_TRUE(parts == whole) << steps.name;
  }
}

// transformers rewrites the export of a tokenizer trained here: spaces stay spaces, and an added token replaces the
// byte of the line end.
TEST_F(JsonTokenizers, ReadExportsWithoutTheirModel) {
  const std::string text = write("text.txt", "the head attends\nto every token  of the room\n");
  config::TokenizerOptions options{.kind = config::TokenizerKind::sentencepiece, .vocabulary_size = 290};
  options.keep_whitespace = true;
  const auto trained = train_tokenizer(options, *data::open_text({text}, {}));
  write("tokenizer.json", to_tokenizer_json(*trained, {.names = {"<unk>", "<s>", "</s>"}}));
  const auto again = load_tokenizer(folder_);
  for (const char* one : {"the room", " a\n\n the  head\n", "\xe2\x96\x81 b", "\n", "x\xc3\xa9"}) {
    EXPECT_EQ(again->encode(one), trained->encode(one)) << one;
    EXPECT_EQ(again->decode(again->encode(one)), one);
  }
}

// As in transformers, tokenizer.json takes precedence over tokenizer.model, unless it has an unsupported setting.
TEST_F(JsonTokenizers, ComeBeforeAModel) {
  write("tokenizer.model", to_sentencepiece_model(*tokenizer("first")));
  EXPECT_EQ(load_tokenizer(folder_)->encode(" a"), Ids{267});
  Json json = document("first");
  json["normalizer"] = {{"type", "NFC"}};
  write("tokenizer.json", json.dump());
  EXPECT_EQ(load_tokenizer(folder_)->encode(" a"), (Ids{266, 260}));
  json["normalizer"] = nullptr;  // byte-level BPE is also supported
  json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  json["decoder"] = {{"type", "ByteLevel"}};
  json["model"] = {{"type", "BPE"}, {"vocab", {{"a", 0}, {"\u0120", 1}}}, {"merges", Json::array()}};
  json["added_tokens"] = Json::array();
  write("tokenizer.json", json.dump());
  EXPECT_EQ(load_tokenizer(folder_)->encode(" a"), (Ids{1, 0}));
}

}  // namespace headroom::tokenizers::json_tokenizer_test
