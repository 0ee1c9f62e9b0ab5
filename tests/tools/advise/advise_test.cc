#include "tools/advise/advise.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <regex>
#include <set>

#include "folder_test.h"
#include "foundation/core/machine/system.h"
#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tools/advise/fit.h"
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
  r.measure = [](const config::Config&) { return train::StepTime{.step_seconds = 1e-3, .start_seconds = 1e-2}; };
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
  EXPECT_HAS(rates.sentence, "The config's own, 0.0001, ends at ");

  const config::Config written = config::load_config(advice.file.string());
  EXPECT_EQ(config::flatten(written), config::flatten(advice.config));
  const std::string toml = read_text_file(advice.file);
  EXPECT_HAS(toml, "\nbase = \"");
  EXPECT_HAS(toml, "\nlearning_rate = ");
  EXPECT_EQ(toml.find("d_model"), std::string::npos) << "only what it changes";

  const std::string page = read_text_file(advice.report);
  EXPECT_HAS(page, "<svg");
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos) << "self-contained";
  EXPECT_HAS(page, "headroom advise tiny.toml");
  const Json json = to_json(advice);
  EXPECT_TRUE(json.contains("config"));
  EXPECT_GE(json.at("runs").size(), 13u) << "7 + 4 + 2";
  EXPECT_HAS(render_table(advice), "taken");
}

TEST_F(AdviseTest, ResumesAndRepeatsItself) {
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
  EXPECT_HAS(refusal(r), "budget_seconds is 30.0 there, 61.0 here");
  r = request();
  r.overrides = {"model.n_layers=2"};
  EXPECT_HAS(refusal(r), "model.n_layers is 1 there, 2 here");
  r = request();
  std::ofstream(folder() / "out" / "advice.json") << "{\"format\": 3}";
  EXPECT_HAS(refusal(r), "is not a valid record of advise");
}

TEST_F(AdviseTest, TooSmallABudgetNamesTheSmallestOneThatSuffices) {
  AdviseRequest r = request();
  r.budget = 0.05;
  r.measure = nullptr;  // no machine trains ten steps in a tenth of a millisecond
  const std::string said = refusal(r);
  EXPECT_HAS(said, "advise: --budget: ");
  EXPECT_HAS(said, "is too short");
  EXPECT_HAS(said, "ask for about");
}

// In the same folder, because the measured speeds are those of the refusal.
TEST_F(AdviseTest, TheBudgetThatARefusalNamesIsEnough) {
  AdviseRequest r = request();
  r.budget = 2.0;
  const std::string said = refusal(r);
  std::smatch seconds;
  ASSERT_TRUE(std::regex_search(said, seconds, std::regex("ask for about ([0-9]+) s or more"))) << said;
  EXPECT_HAS(said, "--keep size");
  r.budget = std::stod(seconds[1]);
  EXPECT_EQ(advise(r).budget, r.budget);
  EXPECT_LT(r.budget, 20.0) << "ten steps of 1 ms, 39 times, in nine hundredths of it";
}

// A refusal may also propose to keep something.
TEST_F(AdviseTest, AFolderWithoutPilotRunsAcceptsAnotherRequest) {
  AdviseRequest r = request();
  r.budget = 2.0;
  EXPECT_HAS(refusal(r), "--budget");
  r.keep = {kKeepBatch};
  r.heads = true;
  r.budget = 1.0;
  EXPECT_HAS(refusal(r), "--budget") << "not --out";
}

TEST_F(AdviseTest, AShortBudgetGetsASmallerModel) {
  AdviseRequest r = request();
  r.keep = {kKeepBatch};
  r.budget = 25.0;
  r.overrides = {"model.d_model=64", "model.attention.d_head=16"};
  r.measure = [](const config::Config& config) {
    return train::StepTime{.step_seconds = 1e-7 * static_cast<double>(cost::count_parameters(config.model)),
                           .start_seconds = 1e-2};
  };
  const Advice advice = advise::advise(r);
  EXPECT_LT(advice.config.model.d_model, 64);
  EXPECT_HAS(advice.sentences[1], "do not fit the budget");
}

TEST_F(AdviseTest, TheConfigWorksWhereverItsFolderIsMoved) {
  fs::create_directories(folder() / "here" / "runs");
  fs::copy(folder() / "tiny.toml", folder() / "here");
  fs::copy(folder() / "text.txt", folder() / "here");
  AdviseRequest r = request();
  r.config = (folder() / "here" / "tiny.toml").string();
  r.out = folder() / "here" / "runs" / "advice";
  const std::int64_t steps = advise(r).config.train.steps;
  fs::rename(folder() / "here", folder() / "there");
  const config::Config moved = config::load_config((folder() / "there" / "runs" / "advice" / "advised.toml").string());
  EXPECT_EQ(moved.train.steps, steps);
  EXPECT_EQ(moved.data.train.at(0), (folder() / "there" / "text.txt").string());
}

TEST_F(AdviseTest, OtherTasksAndFoldersAreRefused) {
  AdviseRequest r = request();
  r.config = "small/mnist_vit";
  EXPECT_HAS(refusal(r), "must train a language model on text");
  r = request();
  r.variants = {"switchhaed"};
  EXPECT_HAS(refusal(r), "switchhaed");
  r = request();
  r.overrides = {"data.train=[\"nowhere.txt\"]"};
  EXPECT_HAS(refusal(r), "nowhere.txt");
  EXPECT_FALSE(fs::exists(folder() / "out")) << "nothing is left";
  fs::create_directories(folder() / "out" / "checkpoints");
  EXPECT_NE(refusal(request()).find("holds a run"), std::string::npos) << refusal(request());
}

TEST_F(AdviseTest, SyntheticTasksAreComparedByTheirLoss) {
  for (const auto& [task, items] : {std::pair("recall", 4), std::pair("parity", 0)}) {
    AdviseRequest r = request();
    r.keep = {};
    r.overrides = {"data.train=[]",
                   fmt::format("data.synthetic=\"{}\"", task),
                   fmt::format("data.synthetic_items={}", items),
                   "data.generated_validation=40",
                   "data.validation_fraction=0.05",
                   "model.vocabulary_size=256"};
    r.out = folder() / "out" / task;
    const Advice advice = advise::advise(r);
    ASSERT_EQ(advice.stages.size(), 1u) << task;
    const Stage& rates = advice.stages.front();
    const Candidate& taken = rates.candidates[rates.taken];
    EXPECT_EQ(advice.config.train.learning_rate, taken.config.train.learning_rate);
    EXPECT_GT(taken.config.train.learning_rate, 1e-4) << "far too low after so few steps";
    EXPECT_NEAR(taken.rounds.back().scores.front(),
                tasks::figure(taken.rounds.back().trained.front().result.figures(), "loss"), 1e-12);
    EXPECT_EQ(advice.config.model.d_model, 32) << "the size is the task's";
    EXPECT_EQ(advice.config.model.dropout, 0.0);
    EXPECT_HAS(rates.sentence, " nats per answer after ");
    EXPECT_HAS(advice.sentences[3], "none of which is read twice");
    EXPECT_TRUE(to_json(advice).at("runs").front().contains("loss"));
    EXPECT_HAS(render_table(advice), "Nats per answer of the validation rows");
    EXPECT_EQ(read_text_file(advice.report).find("its per byte"), std::string::npos);
    EXPECT_EQ(config::flatten(config::load_config(advice.file.string())), config::flatten(advice.config));
  }
}

TEST(Variants, TwoOfOneNameAreRefused) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "variants_of_one_name";
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "switchhead.toml").string();
  write_text_file(file, "base = \"zoo/dense\"\n[model.attention]\ngate_output = \"head\"\n");
  try {
    variant_candidates(config::load_config("zoo/dense"), {"switchhead", file});
    FAIL() << "expected UserError";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("two variants are named switchhead"), std::string::npos) << error.what();
  }
  std::filesystem::remove_all(folder);
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
