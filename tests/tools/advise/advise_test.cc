#include "tools/advise/advise.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <set>

#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/advise/candidates.h"
#include "training/cost/cost.h"

namespace headroom::advise {
namespace advise_test {

namespace fs = std::filesystem;

// Creates a folder with a text and the config of a tiny model.
fs::path prepared(const char* name) {
  fs::path folder = fs::path(::testing::TempDir()) / name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::string text;
  for (int line = 0; line < 400; ++line) {
    text += fmt::format("line {} says {} & <b>\n", line, line * line % 97);
  }
  std::ofstream(folder / "text.txt") << text;
  std::ofstream(folder / "tiny.toml") << R"(
[model]
n_layers = 1
d_model = 32
context_length = 16
[model.attention]
n_heads = 4
d_head = 8
[model.mlp]
d_hidden = 32
[tokenizer]
kind = "bytes"
[data]
train = ["text.txt"]
validation_fraction = 0.1
[train]
batch_size = 4
learning_rate = 1e-4
threads = 1
precision = "fp32"
)";
  return folder;
}

AdviseRequest asked_in(const fs::path& folder, const char* out) {
  AdviseRequest r;
  r.config = (folder / "tiny.toml").string();
  r.budget = 30.0;
  r.keep = {kKeepSize, kKeepBatch};
  r.out = folder / out;
  r.cache = folder / "cache";
  r.command = "headroom advise tiny.toml";
  r.measure = [](const config::Config&) { return Measured{.step_seconds = 1e-3, .start_seconds = 1e-2}; };
  return r;
}

// One request runs for all tests; each test gets a copy of its folder.
class AdviseTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder() = prepared("advise_test");
    whole() = advise(asked_in(folder(), "whole"));
  }
  static void TearDownTestSuite() { fs::remove_all(folder()); }
  void TearDown() override { fs::remove_all(folder() / "out"); }

  static fs::path& folder() {
    static fs::path folder;
    return folder;
  }
  static Advice& whole() {
    static Advice advice;
    return advice;
  }
  static AdviseRequest request() { return asked_in(folder(), "out"); }
  static void copy_whole() { fs::copy(folder() / "whole", folder() / "out", fs::copy_options::recursive); }

  static std::string refusal(const AdviseRequest& r) {
    try {
      advise(r);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
};

// The results of all pilot runs, without times.
std::vector<std::string> trainings(const Advice& advice) {
  std::vector<std::string> all;
  for (const Json& run : to_json(advice).at("runs")) {
    all.push_back(fmt::format("{} {} {} {} {}", run.at("name").get<std::string>(), run.at("round").get<int>(),
                              run.at("seed").get<int>(), run.at("steps").get<int>(),
                              run.at("parameters_sha256").get<std::string>()));
  }
  return all;
}

TEST_F(AdviseTest, FindsABetterRateAndWritesAConfigWithEvidence) {
  const Advice& advice = whole();
  ASSERT_EQ(advice.stages.size(), 1u);
  const Stage& rates = advice.stages.front();
  ASSERT_EQ(rates.candidates.size(), 7u);
  EXPECT_EQ(rates.candidates[rates.own].name, "0.0001");
  const double best = rates.candidates[rates.taken].config.train.learning_rate;
  EXPECT_GT(best, 2e-4) << "1e-4 is far too low after so few steps";
  EXPECT_EQ(advice.config.train.learning_rate, best);
  EXPECT_EQ(rates.candidates[rates.taken].rounds.size(), 3u);
  EXPECT_GT(rates.candidates[rates.taken].rounds[1].steps, rates.candidates[rates.taken].rounds[0].steps);
  EXPECT_NE(rates.sentence.find("The config's own, 0.0001, ends at "), std::string::npos) << rates.sentence;

  const config::Config written = config::load_config(advice.file.string());
  EXPECT_EQ(config::flatten(written), config::flatten(advice.config));
  const std::string toml = read_text_file(advice.file);
  EXPECT_NE(toml.find("\nbase = \""), std::string::npos);
  EXPECT_NE(toml.find("\nlearning_rate = "), std::string::npos);
  EXPECT_EQ(toml.find("d_model"), std::string::npos) << "only what it changes";

  const std::string page = read_text_file(advice.report);
  EXPECT_NE(page.find("<svg"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos) << "self-contained";
  EXPECT_NE(page.find("headroom advise tiny.toml"), std::string::npos);
  const Json json = to_json(advice);
  EXPECT_TRUE(json.contains("config"));
  EXPECT_GE(json.at("runs").size(), 13u) << "7 + 4 + 2";
  EXPECT_NE(render_table(advice).find("taken"), std::string::npos);
}

TEST_F(AdviseTest, GoesOnWhereItWasAndRepeatsItself) {
  copy_whole();
  const std::string config = read_text_file(whole().file);
  const Advice repeated = advise(request());
  EXPECT_EQ(trainings(repeated), trainings(whole()));
  EXPECT_EQ(repeated.spent, whole().spent) << "nothing was trained or measured";
  EXPECT_EQ(read_text_file(repeated.file), config);

  // The state after a kill in the second round.
  fs::remove(repeated.file);
  fs::remove(repeated.report);
  for (const Candidate& candidate : repeated.stages.front().candidates) {
    for (std::size_t round = 1; round < candidate.rounds.size(); ++round) {
      fs::remove_all(folder() / "out" / "trials" / "learning_rate" / ("learning_rate=" + candidate.name) /
                     fmt::format("steps_{}", candidate.rounds[round].steps));
    }
  }
  const Advice again = advise(request());
  EXPECT_EQ(trainings(again), trainings(whole()));
  EXPECT_EQ(read_text_file(again.file), config);
  EXPECT_GT(again.spent, whole().spent);
}

TEST(Advise, CtrlCLeavesNoConfig) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const fs::path folder = prepared("advise_interrupted");
  EXPECT_EXIT(
      {
        catch_interrupts();
        std::raise(SIGINT);
        try {
          AdviseRequest r = asked_in(folder, "out");
          r.measure = nullptr;
          advise(r);
        } catch (const InterruptedError&) {
          std::_Exit(77);
        }
        std::_Exit(1);
      },
      ::testing::ExitedWithCode(77), "");
  EXPECT_FALSE(fs::exists(folder / "out" / "advised.toml"));
  fs::remove_all(folder);
}

TEST_F(AdviseTest, AnotherRequestIsRefusedInTheSameFolder) {
  copy_whole();
  AdviseRequest r = request();
  r.budget = 61.0;
  EXPECT_NE(refusal(r).find("budget_seconds is 30.0 there, 61.0 here"), std::string::npos) << refusal(r);
  r = request();
  r.overrides = {"model.n_layers=2"};
  EXPECT_NE(refusal(r).find("model.n_layers is 1 there, 2 here"), std::string::npos) << refusal(r);
  r = request();
  std::ofstream(folder() / "out" / "advice.json") << "{\"format\": 3}";
  EXPECT_NE(refusal(r).find("is not a valid record of advise"), std::string::npos) << refusal(r);
}

TEST_F(AdviseTest, TooLittleTimeSaysHowMuchWouldDo) {
  AdviseRequest r = request();
  r.budget = 0.05;
  r.measure = nullptr;  // no machine trains ten steps in a tenth of a millisecond
  const std::string said = refusal(r);
  EXPECT_NE(said.find("advise: --budget: "), std::string::npos) << said;
  EXPECT_NE(said.find("is too little"), std::string::npos) << said;
  EXPECT_NE(said.find("ask for about"), std::string::npos) << said;
}

TEST_F(AdviseTest, OtherTasksAndFoldersAreRefused) {
  AdviseRequest r = request();
  r.config = "small/mnist_vit";
  EXPECT_NE(refusal(r).find("must train a language model on text"), std::string::npos) << refusal(r);
  r = request();
  r.variants = {"switchhaed"};
  EXPECT_NE(refusal(r).find("switchhaed"), std::string::npos) << refusal(r);
  r = request();
  r.overrides = {"data.train=[\"nowhere.txt\"]"};
  EXPECT_NE(refusal(r).find("nowhere.txt"), std::string::npos) << refusal(r);
  EXPECT_FALSE(fs::exists(folder() / "out")) << "nothing is left";
  fs::create_directories(folder() / "out" / "checkpoints");
  EXPECT_NE(refusal(request()).find("holds a run"), std::string::npos) << refusal(request());
}

TEST_F(AdviseTest, VariantsAndHeadsHaveTheConfigsSize) {
  config::Config config = config::load_config("zoo/dense");
  const double size = static_cast<double>(cost::count_parameters(config.model));
  const std::vector<Candidate> variants = variant_candidates(config, {"dense", "switchhead", "dcmha"});
  ASSERT_EQ(variants.size(), 9u) << "dense is the config's own";
  EXPECT_EQ(variants[1].name, "dense, 0.001");
  EXPECT_EQ(variants[3].name, "switchhead, 0.0005");
  const std::vector<Candidate> dense = head_candidates(config);
  ASSERT_EQ(dense.size(), 4u);
  EXPECT_EQ(dense[1].config.model.attention.n_heads, 4);
  const std::vector<Candidate> experts = head_candidates(variants[4].config);
  EXPECT_GE(experts.size(), 3u);
  for (const std::vector<Candidate>* const candidates : {&variants, &dense, &experts}) {
    std::set<std::string> names;
    for (const Candidate& candidate : *candidates) {
      EXPECT_NEAR(static_cast<double>(cost::count_parameters(candidate.config.model)), size, 0.01 * size)
          << candidate.name;
      EXPECT_TRUE(names.insert(candidate.name).second) << candidate.name;
      config::check(candidate.config, candidate.name);
    }
  }
}

}  // namespace advise_test
}  // namespace headroom::advise
