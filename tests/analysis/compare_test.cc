#include "headroom/analysis/compare.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "headroom/core/system.h"
#include "headroom/data/token_file.h"

namespace headroom::analysis {
namespace compare_test {

namespace fs = std::filesystem;

// Two tiny models on a page of text.
class CompareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              fmt::format("compare_{}", ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    std::string text;
    for (int line = 0; line < 120; ++line) {
      text += fmt::format("line {} says {} & <b>\n", line, line * line % 97);
    }
    std::ofstream(folder_ / "train.txt") << text;
    std::ofstream(folder_ / "validation.txt") << text.substr(0, 900);
  }
  void TearDown() override { fs::remove_all(folder_); }

  NamedConfig config(const std::string& name, std::int64_t heads) const {
    NamedConfig named{.name = name, .config = {}};
    config::Config& c = named.config;
    c.model.vocabulary_size = 256;
    c.model.n_layers = 1;
    c.model.d_model = 16;
    c.model.context_length = 16;
    c.model.mlp.d_hidden = 16;
    c.model.attention.n_heads = heads;
    c.model.attention.d_head = 16 / heads;
    c.tokenizer.kind = config::TokenizerKind::bytes;
    c.tokenizer.vocabulary_size = 256;
    c.data.train = {(folder_ / "train.txt").string()};
    c.data.validation = {(folder_ / "validation.txt").string()};
    c.train.steps = 6;
    c.train.batch_size = 4;
    c.train.log_every = 1;
    c.train.checkpoint_every = 2;
    c.train.keep_checkpoints = 10;
    c.train.evaluate_every = 2;
    c.train.threads = 1;
    return named;
  }

  CompareRequest request() const {
    CompareRequest r;
    r.configs = {config("four", 4), config("one", 1)};
    r.out = folder_ / "out";
    r.cache = folder_ / "cache";
    r.sample_tokens = 12;
    r.command = "headroom compare four.toml one.toml";
    return r;
  }

  fs::path folder_;
};

TEST_F(CompareTest, TrainsEveryModelAndWritesThePage) {
  const CompareResult result = compare(request());
  ASSERT_EQ(result.runs.size(), 2u);
  EXPECT_FALSE(result.interrupted);
  EXPECT_TRUE(result.notes.empty()) << result.notes.front();
  for (const ComparedRun& run : result.runs) {
    EXPECT_EQ(run.result.steps, 6);
    EXPECT_EQ(run.result.validation.size(), 3u);
    EXPECT_GT(run.headline(), 1.0);
    EXPECT_GT(run.result.peak_memory_bytes, 0);
    EXPECT_GT(run.attention_macs, 0);
    EXPECT_TRUE(fs::exists(folder_ / "out" / run.name / "result.json"));
    ASSERT_EQ(run.samples.size(), 1u);
  }
  EXPECT_EQ(result.prompts.front(), "line 0 says 0 & <b>\nline 1 says ") << "the beginning of the validation data";
  const std::string page = read_text_file(result.report);
  EXPECT_NE(page.find("line 0 says 0 &amp; &lt;b&gt;"), std::string::npos);
  EXPECT_NE(page.find("headroom compare four.toml one.toml"), std::string::npos);

  const Json json = to_json(result);
  for (const char* key :
       {"name", "steps", "train_loss", "validation_loss", "tokens_per_second", "seconds", "peak_memory_bytes",
        "parameters", "parameters_sha256", "attention_macs", "attention_memory"}) {
    EXPECT_TRUE(json.at("runs").at(1).contains(key)) << key;
  }
  EXPECT_TRUE(json.at("runs").at(0).at("executed").contains("step_macs"));
}

TEST_F(CompareTest, KeepsFinishedRunsAndResumesTheOther) {
  const CompareResult whole = compare(request());
  const fs::path one = folder_ / "out" / "one";
  const std::string kept = read_text_file(folder_ / "out" / "four" / "result.json");
  const std::string metrics = read_text_file(one / "metrics.jsonl");
  // As a kill after step 2 leaves it.
  fs::remove(one / "result.json");
  fs::remove(one / "checkpoints" / "step_4.safetensors");
  fs::remove(one / "checkpoints" / "step_6.safetensors");
  fs::remove(folder_ / "out" / "report.html");

  const CompareResult again = compare(request());
  EXPECT_TRUE(fs::exists(again.report));
  EXPECT_EQ(read_text_file(folder_ / "out" / "four" / "result.json"), kept);
  EXPECT_EQ(again.runs[0].result.seconds, whole.runs[0].result.seconds);
  EXPECT_EQ(again.runs[1].result.parameters_sha256, whole.runs[1].result.parameters_sha256);
  EXPECT_EQ(again.runs[1].result.validation.size(), 3u);
  // Its first line holds a measured time, which training afresh would have changed.
  const std::string first_line = metrics.substr(0, metrics.find('\n') + 1);
  EXPECT_EQ(read_text_file(one / "metrics.jsonl").substr(0, first_line.size()), first_line);
}

TEST_F(CompareTest, InterruptedByCtrlCGoesOnLater) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const CompareRequest r = request();
        data::prepare_data(r.configs[0].config.data, r.configs[0].config.tokenizer, r.cache);
        catch_interrupts();
        std::raise(SIGINT);
        const CompareResult result = compare(r);
        std::_Exit(result.interrupted && result.report.empty() && result.runs.size() == 1 ? 77 : 1);
      },
      ::testing::ExitedWithCode(77), "");
  EXPECT_FALSE(fs::exists(folder_ / "out" / "four" / "result.json"));
  EXPECT_EQ(compare(request()).runs.size(), 2u);
}

TEST_F(CompareTest, RefusesAFolderOfOtherRuns) {
  CompareRequest r = request();
  r.configs[1].config.train.steps = 2;
  r.configs[0].config.train.steps = 2;
  compare(r);
  r.configs[1].config.train.learning_rate = 0.5;
  fs::remove(folder_ / "out" / "four" / "result.json");
  try {
    compare(r);
    FAIL() << "accepted";
  } catch (const MisuseError& error) {
    EXPECT_NE(std::string(error.what()).find("train.learning_rate is 0.001 there, 0.5 here"), std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(fs::exists(folder_ / "out" / "four" / "result.json")) << "found out before anything was trained";
}

TEST_F(CompareTest, RefusesADamagedResult) {
  CompareRequest r = request();
  r.configs.resize(1);
  r.configs[0].config.train.steps = 1;
  compare(r);
  const fs::path file = folder_ / "out" / "four" / "result.json";
  for (const char* text : {"", "{", "[]", "{}", "{\"steps\": \"many\"}"}) {
    std::ofstream(file, std::ios::trunc) << text;
    EXPECT_THROW(compare(r), MisuseError) << text;
  }
}

TEST(LoadConfigs, NamesAreFileNames) {
  setenv("HEADROOM_HOME", HEADROOM_SOURCE_DIR, 1);
  const std::vector<NamedConfig> configs = load_configs(
      {"demo/dense_h2", HEADROOM_SOURCE_DIR "/recipes/demo/dense_h8.toml", "demo/switchhead_h2"}, {"train.steps=103"});
  ASSERT_EQ(configs.size(), 3u);
  EXPECT_EQ(configs[0].name, "dense_h2");
  EXPECT_EQ(configs[1].name, "dense_h8");
  EXPECT_EQ(configs[2].config.train.steps, 103);
  const std::vector<NamedConfig> same =
      load_configs({"demo/dense_h2", HEADROOM_SOURCE_DIR "/recipes/demo/dense_h2.toml"});
  EXPECT_EQ(same[0].name, "demo.dense_h2");
}

}  // namespace compare_test
}  // namespace headroom::analysis
