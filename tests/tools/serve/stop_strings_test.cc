#include "tools/serve/engine/stop_strings.h"

#include <gtest/gtest.h>

namespace headroom::serve {
namespace stop_strings_test {

// The text in front of a stop string, of a text that comes in pieces of so many bytes.
std::string cut(const std::vector<std::string>& stops, const std::string& text, std::size_t piece) {
  StopStrings stop(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size() && !stop.stopped(); at += piece) {
    out += stop.push(std::string_view(text).substr(at, piece));
  }
  return out + stop.finish();
}

TEST(StopStrings, EndWhereTheFirstBeginsHoweverTheTextIsCut) {
  const std::string text = "aab aabaab, then abc and the end";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(cut({}, text, piece), text);
    EXPECT_EQ(cut({"never"}, text, piece), text);
    EXPECT_EQ(cut({"aabaab"}, text, piece), "aab ");
    EXPECT_EQ(cut({"abc", "the"}, text, piece), "aab aabaab, ");
    EXPECT_EQ(cut({"aab"}, text, piece), "");
    EXPECT_EQ(cut({"and the ends", "d"}, text, piece), "aab aabaab, then abc an");
    EXPECT_EQ(cut({"the endless"}, text, piece), text);
  }
}

TEST(StopStrings, KeepBackOnlyWhatMayBelongToOne) {
  StopStrings stop({"xyz"});
  EXPECT_EQ(stop.push("abx"), "ab");
  EXPECT_EQ(stop.push("yx"), "xy");
  EXPECT_EQ(stop.push("q"), "xq");
  EXPECT_EQ(stop.push("xy"), "");
  EXPECT_EQ(stop.push("z and more"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("xq"), "");
  EXPECT_EQ(stop.finish(), "");
}

}  // namespace stop_strings_test
}  // namespace headroom::serve
