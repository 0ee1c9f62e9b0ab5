#include "headroom/data/utf8.h"

#include <gtest/gtest.h>

#include "support.h"

namespace headroom::data {
namespace utf8_test {

// The definition, read off RFC 3629: decode, then look at length and code.
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
  // Every one- and two-byte sequence, and those of three and four whose first two bytes decide.
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
  EXPECT_EQ(character_boundary("\x80\x80\x80\x80\x80\x80", 5), 5U);  // not UTF-8: any cut will do, but one forward
}

}  // namespace utf8_test
}  // namespace headroom::data
