#include "foundation/core/text/utf8.h"

#include <gtest/gtest.h>

#include "unicode.h"

namespace headroom::utf8_test {

// Checks UTF-8 by the definition in RFC 3629: decodes each sequence, then checks its length and code point.
std::optional<std::size_t> first_wrong(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = [&](std::size_t i) {
      return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0U;
    };
    const unsigned first = byte(0);
    const std::size_t length = first < 0x80             ? 1
                               : (first & 0xe0) == 0xc0 ? 2
                               : (first & 0xf0) == 0xe0 ? 3
                               : (first & 0xf8) == 0xf0 ? 4
                                                        : 0;
    if (length == 0) {
      return at;
    }
    std::uint32_t code = length == 1 ? first : first & (0xffU >> (length + 1));
    for (std::size_t i = 1; i < length; ++i) {
      if ((byte(i) & 0xc0) != 0x80) {
        return at;
      }
      code = code << 6 | (byte(i) & 0x3f);
    }
    std::string spelled;
    append_character(spelled, code);
    if (spelled.size() != length || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      return at;
    }
    at += length;
  }
  return std::nullopt;
}

std::optional<std::size_t> checked(std::string_view text, Random* cuts) {
  Utf8Checker checker;
  while (!text.empty()) {
    const std::size_t size = cuts == nullptr ? text.size() : std::min<std::size_t>(text.size(), cuts->below(12));
    if (const auto wrong = checker.feed(text.substr(0, size))) {
      return wrong;
    }
    text.remove_prefix(size);
  }
  return checker.finish();
}

TEST(Utf8, AgreesWithTheDefinitionOnAllShortSequences) {
  // Tests all sequences of one and two bytes, and the sequences of three and four bytes that the first two bytes
  // determine.
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      for (const std::string_view rest : {"", "\x80", "\xbf\xbf", "\x80x", "\x80\x80\x80", "\xc0"}) {
        std::string text{static_cast<char>(a), static_cast<char>(b)};
        text += rest;
        ASSERT_EQ(checked(text, nullptr), first_wrong(text)) << a << " " << b << " " << rest.size();
        ASSERT_EQ(is_utf8(text), !first_wrong(text));
      }
    }
  }
}

TEST(Utf8, FindsTheSameByteHoweverTheTextIsCut) {
  Random random(1);
  int wrong = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = random_unicode(random, random.below(20)) + std::string(random.below(20), 'a');
    text += random_unicode(random, random.below(6));
    for (std::uint64_t damage = random.below(3); damage > 0 && !text.empty(); --damage) {
      const std::size_t at = random.below(text.size());
      random.below(2) == 0 ? text[at] = static_cast<char>(random.below(256)) : text.erase(at, 1)[0];
    }
    const auto expected = first_wrong(text);
    wrong += expected ? 1 : 0;
    ASSERT_EQ(checked(text, nullptr), expected);
    ASSERT_EQ(checked(text, &random), expected);
  }
  EXPECT_GT(wrong, 5000);
  EXPECT_LT(wrong, 15000);
}

TEST(Utf8, BoundariesNeverFallInsideACharacter) {
  Random random(2);
  for (int round = 0; round < 500; ++round) {
    const std::string text = random_unicode(random, 10);
    for (std::size_t at = 0; at <= text.size() + 2; ++at) {
      const std::size_t cut = character_boundary(text, at);
      ASSERT_LE(cut, std::min(at, text.size()));
      ASSERT_GT(cut + 4, std::min(at, text.size()));
      ASSERT_TRUE(is_utf8(std::string_view(text).substr(0, cut)));
    }
  }
  EXPECT_EQ(character_boundary("\x80\x80\x80\x80\x80\x80", 5), 5U);  // not UTF-8
}

TEST(Utf8, ReadsAndWritesEveryCodePoint) {
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    std::string expected, text;
    append_character(expected, code);
    const CodePoint read = first_code_point(expected + "x");
    ASSERT_EQ(read.size, surrogate ? 0U : expected.size()) << code;
    ASSERT_EQ(static_cast<std::uint32_t>(read.code), surrogate ? 0U : code);
    append_code_point(text, code);
    ASSERT_EQ(text, expected);
  }
  for (const char* bad :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xff", "\xe2\x82"}) {
    EXPECT_EQ(first_code_point(bad).size, 0U) << bad;
    EXPECT_FALSE(is_utf8(bad));
    EXPECT_TRUE(is_utf8(repair_utf8(bad)));
  }
}

TEST(Utf8, CountsRepairsAndSeesWhatIsUnfinished) {
  EXPECT_EQ(count_characters("a\u00e9\u4e2d\U0001f642"), 4U);
  EXPECT_EQ(repair_utf8("a\u00e9\xff\xe2\x82z"), "a\u00e9\ufffd\ufffd\ufffdz");
  EXPECT_EQ(repair_utf8("\u4e2d\U0001f642"), "\u4e2d\U0001f642");
  EXPECT_EQ(unfinished_bytes("a\xf0\x9f\x98"), 3U);
  EXPECT_EQ(unfinished_bytes("a\xe2"), 1U);
  for (const char* whole : {"", "a", "a\U0001f642", "\xff", "\xf0\x9f\x98x"}) {
    EXPECT_EQ(unfinished_bytes(whole), 0U) << whole;
  }
}

const std::vector<char32_t> kWhiteSpace = {0x09,   0x0a,   0x0b,   0x0c,   0x0d,   0x20,   0x85,   0xa0,   0x1680,
                                           0x2000, 0x2001, 0x2002, 0x2003, 0x2004, 0x2005, 0x2006, 0x2007, 0x2008,
                                           0x2009, 0x200a, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
const std::vector<char32_t> kSeparators = {0x1c, 0x1d, 0x1e, 0x1f};

std::string text_of(char32_t code) {
  std::string text;
  append_code_point(text, code);
  return text;
}

TEST(Blanks, MatchUnicodeAndForPythonFourMore) {
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

TEST(Blanks, AtTheEndAreRemoved) {
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

TEST(LowerCase, ChangesOnlyAscii) {
  EXPECT_EQ(lower_case('Q'), 'q');
  EXPECT_EQ(lower_case("A Z@[`{ a.JPEG 0"), "a z@[`{ a.jpeg 0");
  EXPECT_EQ(lower_case("\xc3\x84"), "\xc3\x84");
  EXPECT_EQ(lower_case(""), "");
}

TEST(Columns, AreTwoForWideLettersAndNoneForMarks) {
  EXPECT_EQ(display_width("█░ä"), 3u);
  EXPECT_EQ(display_width("日\u1112\u1161\u11ab"), 4u);
  EXPECT_EQ(display_width("a\u0301"), 1u);
  EXPECT_EQ(display_width("\xff"), 1u);
  EXPECT_EQ(first_columns("█░ä", 2), "█░");
  EXPECT_EQ(first_columns("日本", 3), "日");
  EXPECT_EQ(first_columns("a\u0301b", 1), "a\u0301");
  EXPECT_EQ(first_columns("ab", 5), "ab");
}

}  // namespace headroom::utf8_test
