#include "training/tasks/translation/chrf.h"

#include <gtest/gtest.h>

#include "headroom/core/error.h"

namespace headroom::tasks {
namespace {

double chrf(const std::vector<std::string>& translations, const std::vector<std::string>& references) {
  return chrf_of(count_chrf(translations, references));
}

// Expected numbers are those of the package sacrebleu 2.6.0.
TEST(Chrf, EqualsSacrebleu) {
  const std::vector<std::string> translations = {"the cat sat on the mat", "Das ist ein Über-Test", "日本語 の テスト",
                                                 "", "ab"};
  const std::vector<std::string> references = {"the cat  lay on\u00a0a mat.", "Dies ist ein Übertest!",
                                               "日本語のテストです", "nothing", "abc"};
  EXPECT_NEAR(chrf(translations, references), 46.40100205229939, 1e-9);
  EXPECT_NEAR(chrf({"abcdefgh"}, {"ab"}), 55.0, 1e-9) << "lengths that the reference has none of do not count";
}

TEST(Chrf, PerfectAndHopelessTranslations) {
  EXPECT_NEAR(chrf({"abc"}, {"abc"}), 100.0, 1e-9);
  EXPECT_EQ(chrf({"x"}, {"y"}), 0.0);
  EXPECT_EQ(chrf({""}, {"y"}), 0.0);
  EXPECT_EQ(chrf({"a"}, {""}), 0.0);
  EXPECT_EQ(chrf({}, {}), 0.0);
  EXPECT_THROW(chrf({"a"}, {}), Error);
}

}  // namespace
}  // namespace headroom::tasks
