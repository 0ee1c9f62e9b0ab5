#include <gtest/gtest.h>

#include <sstream>

#include "cli/front/help_format.h"
#include "cli/front/program.h"

namespace headroom::cli {
namespace user_error_test {

TEST(OneLine, JoinsLines) {
  EXPECT_EQ(one_line("a\nb\r\nc\n\n"), "a b c");
  EXPECT_EQ(one_line("plain"), "plain");
  EXPECT_EQ(one_line("\n"), "");
}

// What Program says of a command line, without the engine.
struct Told {
  int status;
  std::string error, out;
};

Told tell(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "headroom");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = Program().run(static_cast<int>(arguments.size()), arguments.data());
  return {
      .status = status, .error = testing::internal::GetCapturedStderr(), .out = testing::internal::GetCapturedStdout()};
}

TEST(Misuse, NamesTheCommandTheMistakeAndTheNearest) {
  const std::vector<std::pair<std::vector<const char*>, std::string>> cases = {
      {{}, "headroom: a command is required (headroom --help)\n"},
      {{"trian", "x.toml"}, "headroom: unknown command trian; did you mean train? (headroom --help)\n"},
      {{"--jsn"}, "headroom: unknown option --jsn; did you mean --json? (headroom --help)\n"},
      {{"train", "x.toml", "--resum"},
       "headroom: train: unknown option --resum; did you mean --resume? (headroom train --help)\n"},
      {{"train", "x.toml", "--otu=y"},
       "headroom: train: unknown option --otu; did you mean --out? (headroom train --help)\n"},
      {{"train", "x.toml", "y.toml"}, "headroom: train: unexpected argument y.toml (headroom train --help)\n"},
      {{"train"}, "headroom: train: CONFIG is required (headroom train --help)\n"},
      {{"generate", "run"}, "headroom: generate: --prompt is required (headroom generate --help)\n"},
      {{"tokenizer"}, "headroom: tokenizer: a command is required (headroom tokenizer --help)\n"},
      {{"tokenizer", "encod"},
       "headroom: tokenizer: unknown command encod; did you mean encode? (headroom tokenizer --help)\n"},
      {{"train", "x.toml", "--steps", "5"},
       "headroom: train: unknown option --steps; a key of the config is changed by --set train.steps=VALUE (headroom "
       "train --help)\n"},
      {{"match", "x.toml", "y.toml"},
       "headroom: match: unexpected argument y.toml; --target is required (headroom match --help)\n"},
      {{"match", "x.toml", "--target", "y.toml", "--by", "size"},
       "headroom: match: --by: must be one of parameters, macs, got size (headroom match --help)\n"},
      {{"cost"}, "headroom: cost: either CONFIG or --paper is required (headroom cost --help)\n"},
  };
  for (const auto& [arguments, error] : cases) {
    const Told told = tell(arguments);
    EXPECT_EQ(told.status, 2) << error;
    EXPECT_EQ(told.error, error);
    EXPECT_EQ(told.out, "") << error;
  }
}

TEST(Help, WrapsLongDescriptionsUnderTheirColumn) {
  EXPECT_EQ(wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("a_very_long_word b", 6, 0), "a_very_long_word\nb");
  EXPECT_EQ(wrapped("Example:\n  stays as  it is\n", 8, 0), "Example:\n  stays as  it is\n");
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{}, {"evaluate"}, {"compare"}, {"tokenizer", "train"}}) {
    std::vector<const char*> arguments = command;
    arguments.push_back("--help");
    std::istringstream lines(tell(arguments).out);
    bool example = false;
    for (std::string line; std::getline(lines, line);) {
      example = example || line == "Example:";  // stays one line, to be copied
      EXPECT_TRUE(example || line.size() <= 80) << line;
    }
  }
  const std::string text = tell({"evaluate", "--help"}).out;
  EXPECT_NE(text.find("  --skip-bad-rows                 leave out rows"), std::string::npos) << text;
  EXPECT_NE(text.find("\n                                  "), std::string::npos) << text;
}

TEST(Help, GoesToStandardOutputWithAnExample) {
  const Told told = tell({"train", "--help"});
  EXPECT_EQ(told.status, 0);
  EXPECT_EQ(told.error, "");
  EXPECT_NE(told.out.find("Example:\n  headroom train "), std::string::npos) << told.out;
  EXPECT_NE(told.out.find("--resume"), std::string::npos) << told.out;
}

}  // namespace user_error_test
}  // namespace headroom::cli
