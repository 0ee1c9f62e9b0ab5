#include "tools/serve/engine/completion.h"

#include <gtest/gtest.h>

#include "tiny/files.h"

namespace headroom::serve::choice_test {

struct Written {
  std::string text, finish_reason;
  std::vector<std::int64_t> ids, offsets;
};

void add(const Delta& delta, Written& written) {
  EXPECT_EQ(written.finish_reason, "");
  written.text += delta.text;
  written.finish_reason = delta.finish_reason;
  for (const TokenDetails& token : delta.tokens) {
    written.ids.push_back(token.event.id);
    written.offsets.push_back(token.offset);
  }
}

// Passes the bytes of a text as tokens and returns the answer.
Written write(const std::string& text, ChoiceOptions options) {
  const auto tokenizer = tiny::bytes_tokenizer();
  options.tokenizer = tokenizer.get();
  Choice choice(std::move(options));
  Written written;
  for (const char byte : text) {
    decode::TokenEvent event;
    event.id = static_cast<unsigned char>(byte);
    add(choice.take(event), written);
    if (!written.finish_reason.empty()) {
      return written;
    }
  }
  add(choice.finish(), written);
  return written;
}

TEST(Choice, ShowsEachTokenOnceWithItsPlaceInCharacters) {
  const Written written = write("a\u20acb", {.details = true});
  EXPECT_EQ(written.text, "a\u20acb");
  EXPECT_EQ(written.finish_reason, "length");
  EXPECT_EQ(written.ids, (std::vector<std::int64_t>{'a', 0xe2, 0x82, 0xac, 'b'}));
  EXPECT_EQ(written.offsets, (std::vector<std::int64_t>{0, 1, 1, 1, 2}));
  EXPECT_TRUE(write("a", {.details = false}).ids.empty());
}

TEST(Choice, AStoppedTextShowsOnlyItsRemainingTokens) {
  const Written written = write("abcdef", {.stop = {"de"}, .details = true});
  EXPECT_EQ(written.text, "abc");
  EXPECT_EQ(written.finish_reason, "stop");
  EXPECT_EQ(written.ids, (std::vector<std::int64_t>{'a', 'b', 'c'}));
  EXPECT_EQ(write("abcd", {.stop = {"de"}, .details = true}).ids.size(), 4U);
}

TEST(Choice, TheEndTokenIsNotPartOfTheAnswer) {
  const Written written = write("ab.c", {.ends = {'.'}, .details = true});
  EXPECT_EQ(written.text, "ab");
  EXPECT_EQ(written.finish_reason, "stop");
  EXPECT_EQ(written.ids.size(), 2U);
}

TEST(Choice, AnIncompleteCharacterIsReplacedByteByByte) {
  EXPECT_EQ(write("a\xe2\x82", {}).text, "a\ufffd\ufffd");
  EXPECT_EQ(write("a\xe2\x82-", {.details = true}).offsets, (std::vector<std::int64_t>{0, 1, 1, 3}));
}

// Returns the text before the first stop string; the text is pushed in pieces of this many bytes.
std::string cut_at_stop(const std::vector<std::string>& stops, const std::string& text, std::size_t piece) {
  StopStrings stop(stops);
  std::string out;
  for (std::size_t at = 0; at < text.size() && !stop.stopped(); at += piece) {
    out += stop.push(std::string_view(text).substr(at, piece));
  }
  return out + stop.finish();
}

TEST(StopStrings, EndTheTextWhereTheFirstBegins) {
  const std::string text = "aab aabaab, then abc and the end";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    EXPECT_EQ(cut_at_stop({}, text, piece), text);
    EXPECT_EQ(cut_at_stop({"never"}, text, piece), text);
    EXPECT_EQ(cut_at_stop({"aabaab"}, text, piece), "aab ");
    EXPECT_EQ(cut_at_stop({"abc", "the"}, text, piece), "aab aabaab, ");
    EXPECT_EQ(cut_at_stop({"aab"}, text, piece), "");
    EXPECT_EQ(cut_at_stop({"and the ends", "d"}, text, piece), "aab aabaab, then abc an");
    EXPECT_EQ(cut_at_stop({"the endless"}, text, piece), text);
  }
}

TEST(StopStrings, HoldBackOnlyTextThatMayBelongToOne) {
  StopStrings stop({"xyz"});
  EXPECT_EQ(stop.push("abx"), "ab");
  EXPECT_EQ(stop.push("yx"), "xy");
  EXPECT_EQ(stop.push("q"), "xq");
  EXPECT_EQ(stop.push("xy"), "");
  EXPECT_EQ(stop.push("z and more"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("xq") + stop.finish(), "");
}

}  // namespace headroom::serve::choice_test
