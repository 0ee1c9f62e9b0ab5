// The promises hold on this machine, and a broken one is reported.
#include "tools/bits/bits.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "headroom/core/error.h"
#include "headroom/core/files.h"
#include "tiny/folder.h"

namespace headroom::bits {
namespace bits_test {

TEST(Bits, ServingAndEvaluationKeepTheirPromises) {
  const int threads = at::get_num_threads();
  const tiny::Folder folder;
  const std::vector<Check> checks = check_inference({.program = "", .folder = folder.path(), .threads = 1});
  EXPECT_EQ(checks.size(), 6U);
  for (const Check& check : checks) {
    EXPECT_TRUE(check.equal) << check.name << ": " << check.different;
  }
  at::set_num_threads(threads);
}

TEST(Bits, ABrokenPromiseIsReported) {
  const std::vector<Check> checks = {{.name = "ranks", .compared = "a and b", .equal = true, .different = {}},
                                     {.name = "cache", .compared = "c", .equal = false, .different = "dense"}};
  EXPECT_FALSE(all_equal(checks));
  EXPECT_TRUE(all_equal({checks[0]}));
  const Json json = to_json(checks);
  EXPECT_EQ(json[0]["equal"], true);
  EXPECT_TRUE(json[0]["different"].is_null());
  EXPECT_EQ(json[1]["equal"], false);
  EXPECT_EQ(json[1]["different"], "dense");
  const std::string table = render_table(checks);
  EXPECT_NE(table.find("ranks  a and b  equal"), std::string::npos) << table;
  EXPECT_NE(table.find("DIFFERENT: dense"), std::string::npos) << table;
}

Child shell(const tiny::Folder& folder, const std::string& script) {
  return Child(
      {.program = "/bin/sh", .arguments = {"-c", script}, .environment = {{"WORD", "7"}}, .output = folder / "output"});
}

TEST(Child, ReturnsTheDocumentOfAProgram) {
  const tiny::Folder folder;
  EXPECT_EQ(shell(folder, "echo \"{\\\"word\\\": $WORD}\"").result()["word"], 7);
  EXPECT_TRUE(shell(folder, "true").result().is_null());
}

TEST(Child, AFailureNamesTheLastLineOfTheProgram) {
  const tiny::Folder folder;
  try {
    shell(folder, "echo first >&2; echo 'the reason' >&2; exit 3").result();
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the reason"), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("first"), std::string::npos) << error.what();
  }
}

TEST(Child, KillTellsWhetherTheProgramWasRunning) {
  const tiny::Folder folder;
  EXPECT_TRUE(shell(folder, "sleep 60").kill());
}

}  // namespace bits_test
}  // namespace headroom::bits
