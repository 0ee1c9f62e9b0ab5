#include "fuzz.h"

#include "example.h"
#include "tiny/folder.h"

namespace headroom::compare::analysis_fuzz_test {

namespace fs = std::filesystem;

// Holds the files of a sweep with two runs, written without training.
class AnalysisFuzz : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::quiet);
    fs::create_directories(run_);
    write_text_file(out_ / "comparison.json", kComparison);
    for (const fs::path& run : {run_, out_ / "train.learning_rate=0.01"}) {
      fs::create_directories(run);
      write_text_file(run / "config.toml", kConfig);
      write_text_file(run / "result.json", kResult);
      write_text_file(run / "metrics.jsonl", kMetrics);
    }
  }

  // Reads the folder and draws its page, JSON and table.
  static void show(const fs::path& folder) {
    const CompareResult result = report(folder);
    to_json_line(to_json(result));
    render_table(result);
  }

  void damage(const fs::path& file, const fs::path& shown, std::vector<std::string> dictionary) {
    const fuzz::Material material{.good = {read_text_file(file)}, .dictionary = std::move(dictionary)};
    fuzz::against(material, 300, [&](const std::string& input) {
      write_text_file(file, input);
      show(shown);
    });
  }

  static constexpr const char* kComparison =
      R"({"format":"headroom.comparison.1","kind":"sweep","title":"Sweep","about":"","command":"headroom sweep",)"
      R"("seeds":2,"variations":{"train.learning_rate":["0.001","0.01"]},"models":[)"
      R"({"name":"learning_rate 0.001","family":"a","choices":[{"values":[["train.learning_rate","0.001"]],)"
      R"("folder":"train.learning_rate=0.001"}]},)"
      R"({"name":"learning_rate 0.01","family":"b","choices":[{"values":[["train.learning_rate","0.01"]],)"
      R"("folder":"train.learning_rate=0.01"}]}],"prompts":["a"],"sampling":"","samples":{"x":["b"]}})";
  static constexpr const char* kConfig =
      "[model]\nn_layers = 1\nd_model = 16\nvocabulary_size = 256\ncontext_length = 16\n[model.attention]\nn_heads = "
      "2\n"
      "d_head = 8\nprojection = \"experts\"\nexperts = [\"v\"]\nn_experts = 2\ntop_k = 1\n"
      "[tokenizer]\nkind = \"bytes\"\n[train]\nsteps = 4\n";
  static constexpr const char* kResult =
      R"({"steps":4,"train_loss":5.5,"validation_loss":5.4,"validation_perplexity":221.4,"tokens_per_second":1234.5,)"
      R"("seconds":0.5,"cpu_seconds":0.4,"core_share":0.9,"epochs":null,"peak_memory_bytes":1000000,)"
      R"("parameters":10000,"parameters_sha256":"00ff","machine":"a CPU",)"
      R"("validation":[{"step":2,"seconds":0.25,"loss":5.45,"bits_per_byte":7.9},)"
      R"({"step":4,"seconds":0.5,"loss":5.4,"bits_per_byte":7.8}]})";
  static constexpr const char* kMetrics =
      "{\"step\":2,\"loss\":5.6,\"tokens\":100,\"seconds\":0.2}\n"
      "{\"step\":2,\"validation_loss\":5.45,\"seconds\":0.2,\"experts\":{\"layer0.v\":{\"entropy\":0.9}}}\n"
      "{\"step\":4,\"loss\":5.5,\"tokens\":200,\"seconds\":0.4}\n";

  const tiny::Folder temporary_;
  const fs::path out_ = temporary_ / "analysis";
  const fs::path run_ = out_ / "train.learning_rate=0.001";
};

TEST_F(AnalysisFuzz, Comparisons) {
  damage(out_ / "comparison.json", out_,
         {"null", "[]", "{}", "-1", "\"demo\"", "\"comparison\"", "\"sweep\"", "\"folder\":\".\"", "[\"0.001\"]",
          std::string(1000, '['), "\"..\""});
}

TEST_F(AnalysisFuzz, Results) {
  damage(run_ / "result.json", out_,
         {"null", "[]", "{}", "-1", "1e308", "\"diverged\":\"x\",", "\"perplexity\":0,", "\"validation\""});
}

TEST_F(AnalysisFuzz, Metrics) {
  damage(run_ / "metrics.jsonl", run_, {"null", "{}", "-1", "1e308", "\"experts\":{\"a\":{\"entropy\":-1}},", "\n"});
}

TEST_F(AnalysisFuzz, Configs) {
  damage(run_ / "config.toml", run_,
         {"kind = \"vision\"\n", "n_layers = 1000000\n", "memory_length = 9\n", "[train]\n", "precision = \"bf16\"\n",
          "context_length = 1000000000\n", "1e308"});
}

TEST_F(AnalysisFuzz, AFolderThatNoFileSystemHas) {
  std::string text = kComparison;
  text.insert(text.find("train.learning_rate=0.001"), 1000, 'x');
  write_text_file(out_ / "comparison.json", text);
  EXPECT_THROW(show(out_), UserError);
}

// A value that is JSON is shown as JSON, unless it is nested too deeply to be written.
TEST_F(AnalysisFuzz, AValueThatIsDeepJson) {
  std::string deep = kComparison;
  const std::string nested = std::string(100000, '[') + std::string(100000, ']');
  for (std::size_t at = 0; (at = deep.find("\"0.001\"", at)) != std::string::npos; at += nested.size()) {
    deep.replace(at + 1, 5, nested);
  }
  write_text_file(out_ / "comparison.json", deep);
  EXPECT_NO_THROW(show(out_));
}

}  // namespace headroom::compare::analysis_fuzz_test
