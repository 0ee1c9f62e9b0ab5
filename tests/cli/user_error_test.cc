#include <gtest/gtest.h>

#include <algorithm>

#include "cli/front/program.h"

namespace headroom::cli::user_error_test {

TEST(OneLine, JoinsLines) {
  EXPECT_EQ(one_line("a\nb\r\nc\n\n"), "a b c");
  EXPECT_EQ(one_line("plain"), "plain");
  EXPECT_EQ(one_line("\n"), "");
}

struct Result {
  int status;
  std::string error, out;
};

// Runs a command that does not need the engine.
Result run_program(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "headroom");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = Program().run(static_cast<int>(arguments.size()), arguments.data());
  return {
      .status = status, .error = testing::internal::GetCapturedStderr(), .out = testing::internal::GetCapturedStdout()};
}

TEST(Help, WrapsLongDescriptionsUnderTheirColumn) {
  EXPECT_EQ(wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("a_very_long_word b", 6, 0), "a_very_long_word\nb");
  EXPECT_EQ(wrapped("Example:\n  stays as  it is\n", 8, 0), "Example:\n  stays as  it is\n");
  for (const std::vector<const char*>& command :
       {std::vector<const char*>{}, {"evaluate"}, {"compare"}, {"tokenizer", "train"}}) {
    std::vector<const char*> arguments = command;
    arguments.push_back("--help");
    std::istringstream lines(run_program(arguments).out);
    bool example = false;
    for (std::string line; std::getline(lines, line);) {
      example = example || line == "Example:";  // not wrapped, so that it can be copied
      EXPECT_TRUE(example || line.size() <= 80) << line;
    }
  }
  const std::string text = run_program({"evaluate", "--help"}).out;
  EXPECT_NE(text.find("  --skip-bad-rows                 skip rows"), std::string::npos) << text;
  EXPECT_NE(text.find("\n                                  "), std::string::npos) << text;
}

}  // namespace headroom::cli::user_error_test
