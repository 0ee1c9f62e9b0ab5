#include "foundation/core/text/format.h"

#include <gtest/gtest.h>

#include "foundation/core/machine/log.h"
#include "headroom/core/error.h"

namespace headroom::message_test {

std::string message_of(const auto& run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(Printable, LeavesTextAsItIs) {
  EXPECT_EQ(printable("plain \"text\" in C:\\x"), "plain \"text\" in C:\\x");
  EXPECT_EQ(printable("h\u00e9, \u4e2d\u6587, \U0001f642"), "h\u00e9, \u4e2d\u6587, \U0001f642");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, EscapesTerminalSequences) {
  EXPECT_EQ(printable("a\x1b[31mb\nc\td\r\x7f"), "a\\x1b[31mb\\nc\\td\\r\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u{9b}31m");
  EXPECT_EQ(printable("a\u202ecba\u2066\u2028"), "a\\u{202e}cba\\u{2066}\\u{2028}");
}

TEST(Printable, HarmlessTextKeepsItsLines) {
  EXPECT_EQ(harmless("a\x1b[31mb\n\tc\r\n\xc2\x9b\u202e\u4e2d\xff"), "a\\x1b[31mb\n\tc\\r\n\\u{9b}\u202e\u4e2d\xff");
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(printable("a\xff\xc3"), "a\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82");
}

TEST(Printable, IsBoundedAndCutsBetweenCharacters) {
  EXPECT_EQ(printable(std::string(1 << 20, 'x')), std::string(117, 'x') + "...");
  EXPECT_EQ(printable("0123456789", 10), "0123456789");
  EXPECT_EQ(printable("0123456789a", 10), "0123456...");
  EXPECT_EQ(printable("\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9", 10), "\u00e9\u00e9\u00e9...");
  EXPECT_EQ(printable("\x1b\x1b\x1b\x1b", 10), "\\x1b...");
}

TEST(Printable, EveryTextInAMessageGoesThroughIt) {
  const std::string hostile = "\x1b]0;owned\x07" + std::string(1 << 20, 'x');
  const char* const raw = "a\x1b";
  const std::string what = message_of([&] { user_error("{}: {:>4} {} {:.1f} {}", raw, 7, hostile, 0.5, '\x1b'); });
  EXPECT_TRUE(what.starts_with("a\\x1b:    7 \\x1b]0;owned\\x07xxx")) << what;
  EXPECT_TRUE(what.ends_with("xxx... 0.5 \\x1b")) << what;
  EXPECT_LT(what.size(), 700u);
  EXPECT_EQ(message_of([&] { fail("{}", std::string_view("\n")); }), "\\n");
}

TEST(Printable, LinesOfTheLogGoThroughIt) {
  testing::internal::CaptureStderr();
  log_warning("{} is odd", "k\x1b[2J\nheadroom: done");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "warning: k\\x1b[2J\\nheadroom: done is odd\n");
}

}  // namespace headroom::message_test
