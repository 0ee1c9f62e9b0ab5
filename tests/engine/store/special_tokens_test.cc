#include "headroom/store/huggingface.h"

#include <sys/stat.h>

#include "folder_test.h"
#include "tiny/files.h"

namespace headroom::store::special_tokens_test {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(HEADROOM_SOURCE_DIR) / "tests" / "engine" / "store" / "huggingface";

using Ids = std::vector<std::int32_t>;

class SpecialTokensTest : public testing::Test {
 protected:
  // Makes another program's folder. Its model has 40 tokens; the last token of its tokenizer is "<|end|>".
  void SetUp() override {
    set_log_level(LogLevel::quiet);
    fs::copy(kModels / "gpt2", theirs_);
    put_tokenizer(39);
    config_ = parse_json(read_text_file(theirs_ / "config.json"), "config.json");
  }
  void put_tokenizer(int end) {
    Json tokenizer = parse_json(read_text_file(kModels / "tokenizer.json"), "tokenizer.json");
    Json vocabulary = Json::object(), merges = Json::array();
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
      if (id < end) {
        vocabulary[token] = id;
      }
    }
    for (const Json& merge : tokenizer["model"]["merges"]) {
      if (vocabulary.contains(merge[0].get<std::string>() + merge[1].get<std::string>())) {
        merges.push_back(merge);
      }
    }
    tokenizer["model"]["vocab"] = vocabulary;
    tokenizer["model"]["merges"] = merges;
    tokenizer["added_tokens"] = {{{"id", end},
                                  {"content", "<|end|>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}}};
    tokenizer_ = tokenizer;
    put("tokenizer.json", tokenizer_);
  }
  static Json marks(const std::vector<std::string>& names, const Json& ids = Json::object()) {
    Json single = Json::array();
    for (const std::string& name : names) {
      single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    }
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    single.push_back({{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}});  // after the text
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", Json::array()}, {"special_tokens", ids}};
  }
  void put_processor(const Json& processor) {
    tokenizer_["post_processor"] = processor;
    put("tokenizer.json", tokenizer_);
  }
  void put_in_front() { put_processor(marks({"<|end|>"})); }
  std::vector<std::int32_t> begin() const {
    const Checkpoint checkpoint = import_huggingface(theirs_).checkpoint;
    return stored_special_tokens(checkpoint)->begin(*checkpoint.tokenizer);
  }
  void put(const char* name, const Json& json) const { write_text_file(theirs_ / name, json.dump()); }
  Json exported(const char* name) const { return parse_json(read_text_file(back_ / name), name); }
  std::string refusal() const {
    return user_error_of([&] { import_huggingface(theirs_); });
  }

  tiny::Folder folder_;
  fs::path theirs_ = folder_ / "theirs", back_ = folder_ / "back";
  Json tokenizer_, config_;
};

TEST_F(SpecialTokensTest, SurviveImportAndExport) {
  config_["bos_token_id"] = 39;
  config_["eos_token_id"] = {39, 7};
  config_["pad_token_id"] = nullptr;
  put("config.json", config_);
  put("generation_config.json", {{"eos_token_id", 5}, {"do_sample", true}});
  put("tokenizer_config.json", {{"bos_token", {{"__type", "AddedToken"}, {"content", "<|end|>"}}},
                                {"eos_token", "<|end|>"},
                                {"add_bos_token", true},
                                {"chat_template", "anything"}});
  put_in_front();
  const Imported imported = import_huggingface(theirs_);
  save_checkpoint(imported.checkpoint, folder_ / "model.safetensors");
  const Checkpoint read = read_checkpoint(folder_ / "model.safetensors");
  const std::optional<SpecialTokens> kept = stored_special_tokens(read);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->begin(*read.tokenizer), Ids{39});
  EXPECT_EQ(kept->id("bos_token", *read.tokenizer), 39);
  EXPECT_EQ(kept->id("pad_token", *read.tokenizer), -1);
  EXPECT_EQ(kept->ends(*read.tokenizer), (std::set<std::int32_t>{5, 39})) << "that of generate(), and the tokenizer's";

  export_huggingface(read, back_, "test");
  EXPECT_EQ(exported("config.json")["bos_token_id"], 39);
  EXPECT_EQ(exported("config.json")["eos_token_id"], Json({39, 7}));
  EXPECT_TRUE(exported("config.json").at("pad_token_id").is_null());
  EXPECT_EQ(exported("generation_config.json"), Json({{"eos_token_id", 5}}));
  const Json settings = exported("tokenizer_config.json");
  EXPECT_EQ(settings["bos_token"], "<|end|>");
  EXPECT_EQ(settings["eos_token"], "<|end|>");
  EXPECT_EQ(settings["add_bos_token"], true);
  EXPECT_TRUE(settings.at("pad_token").is_null());
  EXPECT_FALSE(settings.contains("chat_template"));
  EXPECT_EQ(stored_special_tokens(import_huggingface(back_).checkpoint)->in_front, Ids{39});
}

TEST_F(SpecialTokensTest, OnlyGivenTokensAreStored) {
  config_.erase("bos_token_id");
  config_["eos_token_id"] = nullptr;
  put("config.json", config_);
  const Checkpoint checkpoint = import_huggingface(theirs_).checkpoint;
  const SpecialTokens kept = stored_special_tokens(checkpoint).value();
  EXPECT_TRUE(kept.in_front.empty());
  EXPECT_EQ(kept.id("bos_token", *checkpoint.tokenizer), -1);
  export_huggingface(checkpoint, back_, "test");
  EXPECT_FALSE(exported("config.json").contains("bos_token_id")) << "the class's own default, as of the original";
  EXPECT_TRUE(exported("config.json").at("eos_token_id").is_null());
  EXPECT_TRUE(exported("tokenizer_config.json").at("bos_token").is_null());
}

TEST_F(SpecialTokensTest, TextsBeginAsTheTemplateSays) {
  put("tokenizer_config.json", {{"bos_token", "<|end|>"}});
  EXPECT_EQ(begin(), Ids{});
  put("tokenizer_config.json", {{"bos_token", "<|end|>"}, {"add_bos_token", true}});
  EXPECT_EQ(begin(), Ids{}) << "a tokenizer.json says all";
  put_in_front();
  EXPECT_EQ(begin(), Ids{39});
  put("tokenizer_config.json", {{"bos_token", nullptr}});
  EXPECT_EQ(begin(), Ids{39}) << "bos_token does not matter";
  put("tokenizer_config.json", Json::object());
  EXPECT_EQ(begin(), Ids{39}) << "nor does its default id";
  put_processor(marks({"a", "<|end|>", "a"}, {{"a", {{"id", "a"}, {"ids", {5, 7}}, {"tokens", {"x", "y"}}}}}));
  EXPECT_EQ(begin(), (Ids{5, 7, 39, 5, 7}));
  const Json five = marks({"a"}, {{"a", {{"id", "a"}, {"ids", {5}}, {"tokens", {"x"}}}}});
  put_processor({{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, marks({"<|end|>"}), five}}});
  EXPECT_EQ(begin(), (Ids{5, 39}));
  put_processor({{"type", "RobertaProcessing"}, {"cls", {"<|end|>", 39}}, {"sep", {"x", 4}}});
  EXPECT_EQ(begin(), Ids{39});
}

// transformers 5.24 adds such tokens after the vocabulary, if the model has embeddings for them.
TEST_F(SpecialTokensTest, TokensWithoutAnIdComeAfterTheVocabulary) {
  put_tokenizer(37);
  const auto names = [&](Json settings) {  // returns tokens 38 and 39
    // A class without tokens by default.
    settings["tokenizer_class"] = "PreTrainedTokenizerFast";
    put("tokenizer_config.json", settings);
    const auto tokenizer = import_huggingface(theirs_).checkpoint.tokenizer;
    EXPECT_EQ(tokenizer->vocabulary_size(), 40);
    std::vector<std::string> found(2);
    for (const char* name : {"<eos>", "<old>", "<pad>", "<late>", "<img>", "<bos>", "<box>"}) {
      if (const std::int32_t id = tokenizer->id_of(name); id >= 38) {
        found.at(static_cast<std::size_t>(id) - 38) = name;
        EXPECT_EQ(tokenizer->encode(name), Ids{id});
      }
    }
    return found;
  };
  using Names = std::vector<std::string>;
  put("special_tokens_map.json", {{"pad_token", "<pad>"}, {"eos_token", "<old>"}});
  Json settings = {{"additional_special_tokens", {"<late>"}}, {"eos_token", {{"content", "<eos>"}}}};
  EXPECT_EQ(names(settings), (Names{"<old>", "<pad>"})) << "the map is read last";
  EXPECT_EQ(stored_special_tokens(import_huggingface(theirs_).checkpoint)->name("eos_token"), "<old>");
  settings["added_tokens_decoder"] = Json::object();
  EXPECT_EQ(names(settings), (Names{"<eos>", "<late>"})) << "it is not read";
  put("special_tokens_map.json", Json::object());
  EXPECT_EQ(names({{"image_token", "<img>"}, {"bos_token", "<bos>"}}), (Names{"<bos>", "<img>"}));
  EXPECT_EQ(names({{"extra_special_tokens", {{"box_token", "<box>"}}}, {"image_token", "<img>"}}),
            (Names{"<img>", "<box>"}));
  EXPECT_EQ(names({{"model_specific_special_tokens", {{"image_token", "<img>"}}}}), (Names{"<img>", ""}));
  EXPECT_EQ(names({{"extra_special_tokens", {"<box>"}}, {"additional_special_tokens", {"<late>"}}}),
            (Names{"<box>", ""}));
  EXPECT_EQ(names({{"split_special_tokens", true}, {"eos_token", "<eos>"}}), (Names{"", ""}));
}

TEST_F(SpecialTokensTest, AFolderMayHaveMoreTokensThanItsModel) {
  tokenizer_["added_tokens"].push_back({{"id", 40}, {"content", "<image>"}, {"special", true}});
  for (const bool in_vocabulary : {false, true}) {
    if (in_vocabulary) {
      tokenizer_["model"]["vocab"]["<image>"] = 40;
    }
    put("tokenizer.json", tokenizer_);
    const auto tokenizer = import_huggingface(theirs_).checkpoint.tokenizer;
    EXPECT_EQ(tokenizer->vocabulary_size(), 40);
    EXPECT_EQ(tokenizer->id_of("<image>"), -1);
    EXPECT_EQ(tokenizer->id_of("<|end|>"), 39);
  }
}

TEST_F(SpecialTokensTest, PipesAreNoModelFolders) {
  fs::remove(theirs_ / "config.json");
  ASSERT_EQ(mkfifo((theirs_ / "config.json").c_str(), 0600), 0);
  EXPECT_HAS(refusal(), "config.json: is not a regular file");
  fs::remove(theirs_ / "config.json");
  EXPECT_HAS(refusal(), "config.json");
}

TEST_F(SpecialTokensTest, AllTokensThatEndATextAreFound) {
  const auto ends = [&] {
    const Checkpoint checkpoint = import_huggingface(theirs_).checkpoint;
    return stored_special_tokens(checkpoint)->ends(*checkpoint.tokenizer);
  };
  using Ends = std::set<std::int32_t>;
  config_["eos_token_id"] = {39, 7, 50256};  // the last id is not in the vocabulary
  put("config.json", config_);
  EXPECT_EQ(ends(), (Ends{7, 39}));
  put("tokenizer_config.json", {{"eos_token", nullptr}});
  EXPECT_EQ(ends(), (Ends{7, 39})) << "the model still ends texts";
  put("generation_config.json", {{"eos_token_id", nullptr}});
  EXPECT_EQ(ends(), (Ends{7, 39}));
  put("generation_config.json", {{"eos_token_id", {1, 2}}});
  EXPECT_EQ(ends(), (Ends{1, 2}));
  put("generation_config.json", {{"eos_token_id", 2.5}});
  EXPECT_HAS(refusal(), "generation_config.json: eos_token_id must be");
  put("generation_config.json", Json::object());
  config_.erase("eos_token_id");
  put("config.json", config_);
  EXPECT_EQ(ends(), Ends{}) << "gpt2's own 50256 is not in the vocabulary";
  fs::copy(kModels / "llama" / "model.safetensors", theirs_, fs::copy_options::overwrite_existing);
  config_ = parse_json(read_text_file(kModels / "llama" / "config.json"), "config.json");
  config_.erase("eos_token_id");
  put("config.json", config_);
  EXPECT_EQ(ends(), Ends{2}) << "llama's own";
}

TEST_F(SpecialTokensTest, WrongTypesAreRefused) {
  config_["eos_token_id"] = "end";
  put("config.json", config_);
  EXPECT_HAS(refusal(), "config.json: eos_token_id must be an id, a list of ids or null, got \"end\"");
  config_["eos_token_id"] = -1;  // some files use -1 for no token
  put("config.json", config_);
  put("tokenizer_config.json", {{"bos_token", 7}});
  EXPECT_HAS(refusal(), "tokenizer_config.json: bos_token must be a token or null, got 7");
  write_text_file(theirs_ / "tokenizer_config.json", "[]");
  EXPECT_HAS(refusal(), "tokenizer_config.json: must be a JSON object");
}

TEST_F(SpecialTokensTest, ModelsTrainedHereHaveNone) {
  Checkpoint checkpoint = import_huggingface(theirs_).checkpoint;
  checkpoint.metadata.clear();
  checkpoint.config.model.vocabulary_size = 280;
  write_text_file(folder_ / "text.txt", tiny::text(4000));
  const auto text = data::open_text({(folder_ / "text.txt").string()}, {});
  checkpoint.tokenizer = tokenizers::train_tokenizer({.vocabulary_size = 280}, *text);
  for (const char* name : {"model.embed", "model.head.w"}) {
    if (const auto found = checkpoint.tensors.find(name); found != checkpoint.tensors.end()) {
      const bool rows = found->first == "model.embed";
      found->second = rows ? at::randn({280, 16}) : at::randn({16, 280});
    }
  }
  export_huggingface(checkpoint, back_, "test");
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    EXPECT_TRUE(exported("config.json").at(key).is_null());
  }
  EXPECT_EQ(exported("tokenizer_config.json")["bos_token"], "<s>");
  EXPECT_EQ(exported("tokenizer_config.json")["split_special_tokens"], true);
  EXPECT_EQ(read_text_file(back_ / "tokenizer.model"), checkpoint.tokenizer->serialised());
  const Json json = exported("tokenizer.json");
  EXPECT_EQ(json["model"]["vocab"].size(), 280U);
  EXPECT_EQ(json["model"]["vocab"]["\n"], checkpoint.tokenizer->line_end_id());

  const Checkpoint again = import_huggingface(back_).checkpoint;
  EXPECT_FALSE(stored_special_tokens(again)) << "its texts still begin after a line end";
  EXPECT_EQ(again.tokenizer->name(), checkpoint.tokenizer->name());
}

}  // namespace headroom::store::special_tokens_test
