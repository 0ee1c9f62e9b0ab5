// compare and sweep refuse these requests, folders and files.

#include "example.h"
#include "tools/compare/run/execution.h"
#include "training/train/loop/train.h"

namespace headroom::compare::compare_refusals_test {

namespace fs = std::filesystem;
class CompareRefusals : public compare_fixture::CompareTest {};

TEST_F(CompareRefusals, RefusesWhatCannotBeTuned) {
  const std::vector<std::pair<Variation, std::string>> cases = {
      {{"train.seed", {"1", "2"}}, "--seeds"},
      {{"train.learning_rte", {"1"}}, "train.learning_rate"},
      {{"train.learning_rate", {"1", "fast"}}, "train.learning_rate"},
      {{"train.learning_rate", {"1e-3", "0.001"}}, "named twice"},
      {{"model.attention.n_heads", {"4", "-1"}}, "model.attention.n_heads"},
      {{"train.evaluate_tokens", {"4", "0"}}, "cannot be compared"},
  };
  for (const auto& [variation, says] : cases) {
    CompareRequest r = request();
    r.variations = {variation};
    EXPECT_HAS(refusal(r), says);
    r.variations = {{"train.clip_norm", {"1"}}, {"train.clip_norm", {"2"}}};
    EXPECT_THROW(compare(r), UserError);
    r.variations.clear();
    r.seeds = 0;
    EXPECT_THROW(compare(r), UserError);
  }
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

// A model without a run, or a damaged record, may be overwritten.
TEST_F(CompareRefusals, RunsThatWereOnlyPlannedMayBeReplaced) {
  CompareRequest r = quick_request();
  compare(r);
  fs::remove_all(r.out / "one");
  r.configs.pop_back();
  EXPECT_EQ(compare(r).runs.size(), 1u);
}

TEST_F(CompareRefusals, RefusesADamagedRecord) {
  const CompareRequest r = quick_sweep({"0.001", "0.01"});
  sweep(r);
  const fs::path file = r.out / "comparison.json";
  const std::string whole = read_text_file(file);
  for (const auto& [was, is] : std::vector<std::pair<std::string, std::string>>{
           {"\"seeds\":1", "\"seeds\":-1"},
           {"\"kind\":\"sweep\"", "\"kind\":3"},
           {"\"seeds\":1", "\"seeds\":1e300"},
           {"\"seeds\":1", "\"seeds\":99999999999999999999"},
           {"\"values\":[[\"train.learning_rate\",\"0.001\"]]", "\"values\":[]"},
           {"\"values\":[[\"train.learning_rate\",\"0.001\"]]", "\"values\":[[\"train.steps\",\"0.001\"]]"},
           {"\"values\":[[\"train.learning_rate\",\"0.001\"]]", "\"values\":[[\"train.learning_rate\",\"3\"]]"},
           {"\"variations\":{\"train.learning_rate\":[\"0.001\",\"0.01\"]}", "\"variations\":{}"},
           {"\"name\":\"learning_rate 0.01\"", "\"name\":\"learning_rate 0.001\""},
           {"\"folder\":\"train", "\"folder\":\"../train"}}) {
    const std::size_t at = whole.find(was);
    ASSERT_NE(at, std::string::npos) << was << " in " << whole;
    std::ofstream(file, std::ios::trunc) << std::string(whole).replace(at, was.size(), is);
    EXPECT_THROW(report(r.out), UserError) << is;
  }
  std::ofstream(file, std::ios::trunc) << whole;
  EXPECT_EQ(report(r.out).runs.size(), 2u);
  const fs::path run = r.out / "train.learning_rate=0.001", config = run / "config.toml";
  const std::string toml = read_text_file(config);
  std::ofstream(config, std::ios::trunc) << "[model]\nn_layers = 0\n";
  EXPECT_THROW(report(r.out), UserError);
  std::ofstream(config, std::ios::trunc) << toml << "\n";
  std::ofstream(run / "metrics.jsonl", std::ios::app) << std::string(100000, '[') << "\n{\"step\": -3, \"loss\": 1}\n";
  EXPECT_EQ(report(run).runs[0].result().steps, 1);
}

TEST_F(CompareRefusals, AllIsCheckedBeforeTheFirstStep) {
  CompareRequest r = request();
  r.configs[1].config.train.device = "cuda:99";
  EXPECT_HAS(refusal(r), "cuda:99");
  r = request();
  r.configs[1].config.train.batch_size = 1 << 24;
  r.configs[1].config.model.context_length = 1 << 20;
  EXPECT_HAS(refusal(r), "of memory");
  r = request();
  r.prompts = {"good", "bad \xff"};
  EXPECT_HAS(refusal(r), "--prompt: must be valid UTF-8");
  r = request();
  r.configs[1].config.train.sample_every = 2;
  r.configs[1].config.train.sample_prompt = "\xff";
  EXPECT_HAS(refusal(r), "train.sample_prompt: must be valid UTF-8");
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(CompareRefusals, OnlyRunsOfTheSameSettingsCount) {
  CompareRequest r = quick_request();
  r.seeds = 2;
  r.configs.resize(1);
  compare(r);
  EXPECT_EQ(report(r.out).runs[0].trained.size(), 2u);
  const fs::path config = r.out / "four" / "seed_2" / "config.toml";
  std::string text = read_text_file(config);
  text.replace(text.find("seed = 2"), 8, "seed = 3");
  std::ofstream(config, std::ios::trunc) << text;
  EXPECT_EQ(report(r.out).runs[0].trained.size(), 1u);
  EXPECT_THROW(compare(r), UserError);
}

// The content of the data decides, not the keys that name the files.
TEST_F(CompareRefusals, OtherValidationDataAndTokenizersAreRefused) {
  const std::string text = read_text_file(folder_ / "train.txt");
  std::ofstream(folder_ / "copy.txt") << text;
  std::ofstream(folder_ / "other.txt") << text << "a line more at its end\n";
  const auto of = [&](const char* train, config::TokenizerKind kind, bool held_out) {
    CompareRequest r = quick_request();
    for (NamedConfig& named : r.configs) {
      named.config.tokenizer.kind = kind;
      named.config.tokenizer.vocabulary_size = kind == config::TokenizerKind::words ? 0 : 256;
      named.config.vocabulary_follows_tokenizer = true;
      if (held_out) {
        named.config.data.validation.clear();
      }
    }
    r.configs[1].config.data.train = {(folder_ / train).string()};
    return r;
  };
  constexpr auto kBytes = config::TokenizerKind::bytes, kWords = config::TokenizerKind::words;
  const std::string held_out = refusal(of("other.txt", kBytes, true));
  EXPECT_TRUE(held_out.starts_with("compare: four and one have different validation data (")) << held_out;
  const std::string words = refusal(of("other.txt", kWords, false));
  EXPECT_TRUE(words.starts_with("compare: four and one have different tokenizers (words-")) << words;
  EXPECT_FALSE(fs::exists(folder_ / "out/four")) << "before anything is trained";
  CompareRequest s = quick_sweep({});
  s.configs[0].config.data.validation.clear();
  s.variations = {
      {"data.train",
       {"[\"" + (folder_ / "train.txt").string() + "\"]", "[\"" + (folder_ / "other.txt").string() + "\"]"}}};
  EXPECT_HAS(refusal(s), "have different validation data");

  compare(of("copy.txt", kWords, true));              // the same under another name
  CompareRequest r = of("other.txt", kBytes, false);  // trained on other text, evaluated on the same text
  r.out = folder_ / "out2";
  EXPECT_EQ(compare(r).runs.size(), 2U);
}

TEST_F(CompareRefusals, RefusesADamagedResult) {
  CompareRequest r = quick_request();
  r.configs.resize(1);
  compare(r);
  const fs::path file = folder_ / "out" / "four" / "result.json";
  const std::string whole = read_text_file(file);
  std::vector<std::string> damaged = {"", "{", "[]", "{}", "{\"steps\": \"many\"}"};
  for (const char* key : {"steps", "seconds", "peak_memory_bytes", "parameters", "validation"}) {
    Json json = Json::parse(whole);
    json[key] = -1;
    damaged.push_back(json.dump());
  }
  for (const std::string& text : damaged) {
    std::ofstream(file, std::ios::trunc) << text;
    EXPECT_THROW(compare(r), UserError) << text;
  }
}

}  // namespace headroom::compare::compare_refusals_test
