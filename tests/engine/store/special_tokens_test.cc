#include "headroom/store/huggingface.h"

#include <gtest/gtest.h>

#include "data/text/text.h"
#include "folder_test.h"
#include "headroom/core/files.h"
#include "tiny/files.h"

namespace headroom::store {
namespace special_tokens_test {

namespace fs = std::filesystem;

const fs::path kModels = fs::path(HEADROOM_SOURCE_DIR) / "tests" / "engine" / "store" / "huggingface";

class SpecialTokensTest : public testing::Test {
 protected:
  // A folder of another program; token 39 of its tokenizer is "<|end|>".
  void SetUp() override {
    set_log_level(LogLevel::quiet);
    fs::copy(kModels / "gpt2", theirs_);
    Json tokenizer = parse_json(read_text_file(kModels / "tokenizer.json"), "tokenizer.json");
    std::string last;
    for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
      last = id == 39 ? token : last;
    }
    tokenizer["model"]["vocab"].erase(last);
    Json merges = Json::array();
    for (const Json& merge : tokenizer["model"]["merges"]) {
      if (merge.is_array() ? merge[0].get<std::string>() + merge[1].get<std::string>() != last : true) {
        merges.push_back(merge);
      }
    }
    tokenizer["model"]["merges"] = merges;
    tokenizer["added_tokens"] = {{{"id", 39},
                                  {"content", "<|end|>"},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}}};
    tokenizer_ = tokenizer;
    put("tokenizer.json", tokenizer_);
    config_ = parse_json(read_text_file(theirs_ / "config.json"), "config.json");
  }
  void put_in_front() {
    const Json mark = {{"SpecialToken", {{"id", "<|end|>"}, {"type_id", 0}}}},
               text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    tokenizer_["post_processor"] = {{"type", "TemplateProcessing"},
                                    {"single", Json::array({mark, text})},
                                    {"pair", Json::array()},
                                    {"special_tokens", Json::object()}};
    put("tokenizer.json", tokenizer_);
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
  EXPECT_TRUE(kept->in_front);
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
  EXPECT_TRUE(stored_special_tokens(import_huggingface(back_).checkpoint)->in_front);
}

TEST_F(SpecialTokensTest, OnlyGivenTokensAreStored) {
  config_.erase("bos_token_id");
  config_["eos_token_id"] = nullptr;
  put("config.json", config_);
  const Checkpoint checkpoint = import_huggingface(theirs_).checkpoint;
  const SpecialTokens kept = stored_special_tokens(checkpoint).value();
  EXPECT_FALSE(kept.in_front);
  EXPECT_EQ(kept.id("bos_token", *checkpoint.tokenizer), -1);
  export_huggingface(checkpoint, back_, "test");
  EXPECT_FALSE(exported("config.json").contains("bos_token_id")) << "the class's own default, as of the original";
  EXPECT_TRUE(exported("config.json").at("eos_token_id").is_null());
  EXPECT_TRUE(exported("tokenizer_config.json").at("bos_token").is_null());
}

TEST_F(SpecialTokensTest, ATemplateMayPutOneInFront) {
  put("tokenizer_config.json", {{"bos_token", "<|end|>"}});
  const auto in_front = [&] { return stored_special_tokens(import_huggingface(theirs_).checkpoint)->in_front; };
  EXPECT_FALSE(in_front());
  put("tokenizer_config.json", {{"bos_token", "<|end|>"}, {"add_bos_token", true}});
  EXPECT_FALSE(in_front()) << "a tokenizer.json says all";
  put_in_front();
  EXPECT_TRUE(in_front());
  put("tokenizer_config.json", {{"bos_token", nullptr}});
  EXPECT_FALSE(in_front()) << "there is none";
}

TEST_F(SpecialTokensTest, AllTokensThatEndATextAreFound) {
  const auto ends = [&] {
    const Checkpoint checkpoint = import_huggingface(theirs_).checkpoint;
    return stored_special_tokens(checkpoint)->ends(*checkpoint.tokenizer);
  };
  using Ends = std::set<std::int32_t>;
  config_["eos_token_id"] = {39, 7, 50256};  // the last one is not in the vocabulary
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
  config_["eos_token_id"] = -1;  // some files write -1 for none
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

}  // namespace special_tokens_test
}  // namespace headroom::store
