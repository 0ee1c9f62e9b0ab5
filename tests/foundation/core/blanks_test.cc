#include "foundation/core/text/blanks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "foundation/core/text/utf8.h"

namespace headroom {
namespace blanks_test {

const std::vector<char32_t> kWhiteSpace = {0x09,   0x0a,   0x0b,   0x0c,   0x0d,   0x20,   0x85,   0xa0,   0x1680,
                                           0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                           0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
const std::vector<char32_t> kSeparators = {0x1c, 0x1d, 0x1e, 0x1f};

std::string text_of(char32_t code) {
  std::string text;
  append_code_point(text, code);
  return text;
}

TEST(Blanks, AreThoseOfUnicodeAndForPythonFourMore) {
  std::vector<char32_t> white, more;
  for (char32_t code = 0; code < 0x20000; ++code) {
    const std::string text = text_of(code);
    const std::size_t blank = leading_blank(text + "x");
    if (is_white_space(code)) {
      white.push_back(code);
      ASSERT_EQ(blank, text.size()) << static_cast<std::uint32_t>(code);
    } else if (blank > 0) {
      more.push_back(code);
    }
  }
  EXPECT_EQ(white, kWhiteSpace);
  EXPECT_EQ(more, kSeparators);
  for (const char* none : {"", "x ", "\xe2\x80", "\x85", "\xa0"}) {
    EXPECT_EQ(leading_blank(none), 0U) << none;
  }
}

TEST(Blanks, AtTheEndAreLeftOut) {
  std::string blanks;
  for (const auto* some : {&kWhiteSpace, &kSeparators}) {
    for (const char32_t code : *some) {
      EXPECT_EQ(without_trailing_blanks(" a" + text_of(code)), " a");
      blanks += text_of(code);
    }
  }
  EXPECT_EQ(without_trailing_blanks("a \u00e9" + blanks), "a \u00e9");
  EXPECT_EQ(without_trailing_blanks(blanks), "");
  EXPECT_EQ(without_trailing_blanks(""), "");
  for (const char* kept : {"a\u200b", " \x80", "a\xe2\x80", "a\xa0"}) {
    EXPECT_EQ(without_trailing_blanks(kept), kept);
  }
}

TEST(Blanks, AtBothEndsAreTrimmed) {
  EXPECT_EQ(trimmed(" \t\r\na b\n"), "a b");
  EXPECT_EQ(trimmed("a"), "a");
  EXPECT_EQ(trimmed(" \n"), "");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed(" a\n", " \t"), "a\n");
}

}  // namespace blanks_test
}  // namespace headroom
